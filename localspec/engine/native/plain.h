// Outputs one after the other, as ggml-common.h has them.

#pragma once

#include "activations.h"

namespace {

// As weights of which every two vectors are woven (`straight`, `crossed`).
struct Woven256 : Block256 {};

inline void quantize(const float * x, Woven256 & block) {
    quantize(x, static_cast<Block256 &>(block));
    int16_t pairs[128], woven[128];
    std::memcpy(pairs, block.q, sizeof pairs);
    for (int at = 0; at < 128; at += 32) {
        for (int i = at; i < at + 16; i += 2) {
            woven[i] = pairs[i], woven[i + 1] = pairs[i + 17];
            woven[i + 16] = pairs[i + 1], woven[i + 17] = pairs[i + 16];
        }
    }
    std::memcpy(block.q, woven, sizeof woven);
}

struct Plain : Vectors {
    static constexpr int UNIT = 1;
    static constexpr int MOST_ROWS = 32;  // from here on llama.cpp unpacks through memory, and is faster
    static constexpr int AHEAD_BYTES = 16384;

    template <int ROWS> using Sums = SumsOf<ROWS, 1>;

    template <int ROWS, int VECTORS>
    static void store(int now, const SumsOf<ROWS, VECTORS> & sums, int count, float * out, size_t stride) {
        EVERY_ROW_UNROLLED EVERY(VECTORS) {
            const int first = i * Vectors::SIDES;
            if (first < count) store_outputs(out + row * stride + first, count - first, sums.up[row][i], sums.down[row][i]);
        }
    }
};

// --- 256 weights ---------------------------------------------------------------------------------------

struct OfQ6_K : Vectors {
    static constexpr size_t BYTES = 128 + 64 + 16 + 2;

    // Of four quarters one, 32 too large; and the sixteen scales.
    static void unpack(const uint8_t * const * outputs, int quarter, Bits & one, Bits & two) {
        const int first = 64 * (quarter / 2);
        one = of_outputs(outputs, first), two = of_outputs(outputs, first + 32);
        const Bits tops = of_outputs(outputs, 128 + first / 2), low = bytes(0xf), top = bytes(0x30);
        const bool upper = quarter % 2;
        one = bits_or(bits_and(upper ? right<4>(one) : one, low), bits_and(upper ? tops : left<4>(tops), top));
        two = bits_or(bits_and(upper ? right<4>(two) : two, low), bits_and(upper ? right<2>(tops) : left<2>(tops), top));
    }
    static Bits scales(const uint8_t * const * outputs) { return sixteen(outputs, 192); }
};

// Of 256 weights: as many outputs at once as there are registers for, and so many in turn before the next
// activations that these come from the first-level cache.
struct PlainOfK : Plain {
    using Block = Woven256;
    static constexpr int WEIGHTS = 256, ROWS_AT_ONCE = 32, ROWS_UNROLLED = std::max(1, ROWS_IN_REGISTERS);
    static constexpr int VECTORS = Vectors::PLAIN_VECTORS, TURNS = Vectors::PLAIN_TURNS;
    static constexpr int SIDES = TURNS * VECTORS * Vectors::SIDES;
    using Sides = const uint8_t *[SIDES];

    template <int ROWS> using Sums = SumsOf<ROWS, TURNS * VECTORS>;

    // Calls `use` with the outputs of each turn, and with the first of their vectors of sums.
    template <typename Use>
    static void in_turn(const Sides & sides, const Use & use) {
        _Pragma("GCC unroll 1") for (int first = 0; first < TURNS * VECTORS; first += VECTORS) {
            use(sides + first * Vectors::SIDES, first);
        }
    }

    static const uint8_t * const * outputs(const uint8_t * const * sides, int vector) {
        return sides + vector * Vectors::SIDES;
    }

    // 64 of 256 unsigned weights of each output, woven, and their scales.
    struct Quarter {
        Bits straight, crossed, scales;

        Quarter() = default;
        Quarter(Bits one, Bits two, Bits scales)
            : straight(Vectors::straight(one, two)), crossed(Vectors::crossed(one, two)), scales(scales) {}
    };

    // Sums of all 256 for each row, from what `begin` sets them to until `end` takes them. Those of few rows
    // stay in registers, and weights are unpacked by the quarter; else as many quarters as there is room for.
    template <int ROWS, typename Unpack, typename Begin, typename End>
    static void dot256(int now, const Block * blocks, const Unpack & unpack, const Begin & begin, const End & end) {
        constexpr bool FEW = ROWS <= ROWS_IN_REGISTERS;
        constexpr int AT_ONCE = FEW ? 1 : QUARTERS_AT_ONCE;
        Bits sums[ROWS][VECTORS];
        EACH(part, 4 / AT_ONCE) {
            const int first = AT_ONCE * part;
            Quarter weights[AT_ONCE][VECTORS];
            EACH(at, AT_ONCE) EVERY(VECTORS) weights[at][i] = unpack(first + at, i);
            every<FEW>(now, [&](int row) {
                Bits here[VECTORS];
                if (first == 0) begin(row, here);
                else EVERY(VECTORS) here[i] = sums[row][i];
                EACH(at, AT_ONCE) dot64(weights[at], blocks[row].q + 64 * (first + at), here);
                if (first + AT_ONCE == 4) end(row, here);
                else EVERY(VECTORS) sums[row][i] = here[i];
            });
        }
    }

  private:
    static void dot64(const Quarter (&weights)[VECTORS], const int8_t * q, Bits (&sums)[VECTORS]) {
        const Bits one = every_32(q), two = every_32(q + 32);
        EVERY(VECTORS) {
            sums[i] = weigh(sums[i], weights[i].straight, weights[i].crossed, one, two, weights[i].scales);
        }
    }
};

struct PlainQ6_K : PlainOfK {
    static constexpr ggml_type TYPE = GGML_TYPE_Q6_K;
    static constexpr int MOST_ROWS = 1 << 30;
    static constexpr size_t BYTES = OfQ6_K::BYTES;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & of_all, Sums<ROWS> & sums) {
        in_turn(of_all, [&](const uint8_t * const * sides, int first) {
            Bits scales[VECTORS], excess[VECTORS];
            Floats step[VECTORS];
            EVERY(VECTORS) {
                scales[i] = OfQ6_K::scales(outputs(sides, i));
                // Weights are 32 too large, and what that adds is taken away in the lanes where llama.cpp does.
                excess[i] = negative16(left<5>(scales[i]));
                step[i] = steps(outputs(sides, i), 208);
            }
            const auto unpack = [&](int quarter, int i) {
                Bits one, two;
                OfQ6_K::unpack(outputs(sides, i), quarter, one, two);
                return Quarter(one, two, chosen<2>(scales[i], 4 * quarter));
            };
            const auto begin = [&](int row, Bits (&exact)[VECTORS]) {
                EVERY(VECTORS) exact[i] = weigh(zero(), every_32(blocks[row].sums), excess[i]);
            };
            const auto end = [&](int row, const Bits (&exact)[VECTORS]) {
                const Floats scale = all(blocks[row].scale);
                EVERY(VECTORS) {
                    Floats & up = sums.up[row][first + i];
                    up = fma(floats(exact[i]), mul(step[i], scale), up);
                }
            };
            dot256<ROWS>(now, blocks, unpack, begin, end);
        });
    }
};

struct PlainQ5_K : PlainOfK {
    static constexpr ggml_type TYPE = GGML_TYPE_Q5_K;
    static constexpr size_t BYTES = 2 + 2 + 12 + 32 + 128;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & of_all, Sums<ROWS> & sums) {
        in_turn(of_all, [&](const uint8_t * const * sides, int first) {
            Bits both[VECTORS];
            Floats step[VECTORS], low_step[VECTORS];
            EVERY(VECTORS) {
                both[i] = minima_and_scales(outputs(sides, i));
                step[i] = steps(outputs(sides, i), 0);
                low_step[i] = steps(outputs(sides, i), 2);
            }
            const auto unpack = [&](int quarter, int i) {
                const Bits low = bytes(0xf), top = bytes(0x10);
                const Bits pairs = of_outputs(outputs(sides, i), 48 + 32 * quarter);
                const Bits tops = right(of_outputs(outputs(sides, i), 16), 2 * quarter);
                return Quarter(bits_or(bits_and(pairs, low), bits_and(left<4>(tops), top)),
                               bits_or(bits_and(right<4>(pairs), low), bits_and(left<3>(tops), top)),
                               chosen<1>(both[i], 8 + 2 * quarter));
            };
            const auto begin = [&](int, Bits (&exact)[VECTORS]) { EVERY(VECTORS) exact[i] = zero(); };
            const auto end = [&](int row, const Bits (&exact)[VECTORS]) {
                const Bits of_32 = every_32(blocks[row].pairs);
                const Floats scale = all(blocks[row].scale), less = all(-blocks[row].scale);
                EVERY(VECTORS) {
                    const Bits low = fours(weigh(zero(), both[i], of_32));
                    Floats &up = sums.up[row][first + i], &down = sums.down[row][first + i];
                    up = fma(floats(exact[i]), mul(step[i], scale), up);
                    down = fma(floats(low), mul(low_step[i], less), down);
                }
            };
            dot256<ROWS>(now, blocks, unpack, begin, end);
        });
    }

  private:
    static Bits minima_and_scales(const uint8_t * const * outputs) {
        uint64_t scale[Vectors::SIDES], minimum[Vectors::SIDES];
        for (int side = 0; side < Vectors::SIDES; ++side) ::unpack(outputs[side] + 4, scale[side], minimum[side]);
        return sixteen(minimum, scale);
    }
};

struct PlainQ8_0 : Plain {
    static constexpr ggml_type TYPE = GGML_TYPE_Q8_0;
    using Block = Block32;
    static constexpr int MOST_ROWS = 1 << 30;
    static constexpr int ROWS_AT_ONCE = 8, ROWS_UNROLLED = 8, WEIGHTS = 32;
    static constexpr size_t BYTES = 2 + 32;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        const Bits weights = of_outputs(sides, 2);
        const Floats step = steps(sides, 0);
        EVERY_ROW_UNROLLED {
            const Bits exact = whole(dot(zero(), unsigned_of(weights), turned(every_32(blocks[row].q), weights)));
            sums.up[row][0] = fma(floats(exact), mul(step, all(blocks[row].scale)), sums.up[row][0]);
        }
    }
};

struct PlainIQ4_XS : Plain {
    static constexpr ggml_type TYPE = GGML_TYPE_IQ4_XS;
    using Block = Block256;
    static constexpr int ROWS_AT_ONCE = 8, ROWS_UNROLLED = 8, WEIGHTS = 256;
    static constexpr size_t BYTES = 2 + 2 + 4 + 128;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        uint64_t scale[SIDES];
        for (int side = 0; side < SIDES; ++side) scale[side] = unpack(sides[side] + 2);
        const Bits all_scales = sixteen(scale, scale);
        Bits weights[8], scales[8];
        EVERY(8) weights[i] = of_table(kvalues_iq4nl, sides, 8 + 16 * i);
        EVERY(8) scales[i] = chosen(all_scales, i, i);
        const Floats step = steps(sides, 0);
        EVERY_ROW_UNROLLED {
            const Block & block = blocks[row];
            Bits exact = zero();
            EVERY(8) {
                const Bits q = turned(every_32(block.q + 32 * i), weights[i]);
                exact = weigh(exact, products(unsigned_of(weights[i]), q), scales[i]);
            }
            sums.up[row][0] = fma(floats(exact), mul(step, all(block.scale)), sums.up[row][0]);
        }
    }
};

}  // namespace
