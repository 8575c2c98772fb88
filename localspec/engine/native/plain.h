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

    // Weights, 32 too large. Returns the sixteen scales.
    static Bits unpack(const uint8_t * const * outputs, Bits (&weights)[8]) {
        const Bits low = bytes(0xf), top = bytes(0x30);
        EVERY(2) {
            const Bits one = of_outputs(outputs, 64 * i), two = of_outputs(outputs, 64 * i + 32);
            const Bits tops = of_outputs(outputs, 128 + 32 * i);
            weights[4 * i] = bits_or(bits_and(one, low), bits_and(left<4>(tops), top));
            weights[4 * i + 1] = bits_or(bits_and(two, low), bits_and(left<2>(tops), top));
            weights[4 * i + 2] = bits_or(bits_and(right<4>(one), low), bits_and(tops, top));
            weights[4 * i + 3] = bits_or(bits_and(right<4>(two), low), bits_and(right<2>(tops), top));
        }
        return sixteen(outputs, 192);
    }
};

// Of 256 weights: as many outputs at once as there are registers for, so that activations are read once.
struct PlainOfK : Plain {
    using Block = Woven256;
    static constexpr int WEIGHTS = 256, ROWS_AT_ONCE = 32, ROWS_UNROLLED = std::max(1, ROWS_IN_REGISTERS);
    static constexpr int VECTORS = Vectors::PLAIN_VECTORS, SIDES = VECTORS * Vectors::SIDES;
    using Sides = const uint8_t *[SIDES];

    template <int ROWS> using Sums = SumsOf<ROWS, VECTORS>;

    // 256 unsigned weights of each output, every two vectors woven, and the scales of each 64.
    struct Weights {
        Bits of[8];
        Bits scales[4];

        void weave() {
            EVERY(4) {
                const Bits one = of[2 * i], two = of[2 * i + 1];
                of[2 * i] = straight(one, two);
                of[2 * i + 1] = crossed(one, two);
            }
        }
    };

    // Sums of all 256 for each row, from what `begin` sets them to until `end` takes them. Those of few
    // rows stay in registers, and with them a quarter of the weights; else so many quarters of these do.
    template <int ROWS, typename Begin, typename End>
    static void dot256(int now, const Block * blocks, const Weights (&weights)[VECTORS], Begin begin, End end) {
        Bits sums[ROWS][VECTORS];
        if constexpr (ROWS <= ROWS_IN_REGISTERS) {
            EVERY_ROW_UNROLLED begin(row, sums[row]);
            EVERY(4) EVERY_ROW_UNROLLED dot64(i, weights, blocks[row].q, sums[row]);
            EVERY_ROW_UNROLLED end(row, sums[row]);
        } else {
            EACH(part, 4 / QUARTERS_AT_ONCE) EVERY_ROW {
                Bits here[VECTORS];
                if (part == 0) begin(row, here);
                else EVERY(VECTORS) here[i] = sums[row][i];
                EVERY(QUARTERS_AT_ONCE) dot64(QUARTERS_AT_ONCE * part + i, weights, blocks[row].q, here);
                if (part == 4 / QUARTERS_AT_ONCE - 1) end(row, here);
                else EVERY(VECTORS) sums[row][i] = here[i];
            }
        }
    }

  private:
    static void dot64(int at, const Weights (&weights)[VECTORS], const int8_t * q, Bits (&sums)[VECTORS]) {
        const Bits one = every_32(q + 64 * at), two = every_32(q + 64 * at + 32);
        EVERY(VECTORS) {
            const Weights & with = weights[i];
            sums[i] = weigh(sums[i], with.of[2 * at], with.of[2 * at + 1], one, two, with.scales[at]);
        }
    }
};

struct PlainQ6_K : PlainOfK {
    static constexpr ggml_type TYPE = GGML_TYPE_Q6_K;
    static constexpr int MOST_ROWS = 128;
    static constexpr size_t BYTES = OfQ6_K::BYTES;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Weights weights[VECTORS];
        Bits excess[VECTORS];
        Floats step[VECTORS];
        EVERY(VECTORS) {
            const uint8_t * const * outputs = sides + i * Vectors::SIDES;
            const Bits bytes = OfQ6_K::unpack(outputs, weights[i].of);
            weights[i].weave();
            EACH(at, 4) weights[i].scales[at] = chosen<2>(bytes, 4 * at);
            // Weights are 32 too large, and what that adds is taken away in the lanes where llama.cpp does.
            excess[i] = negative16(left<5>(bytes));
            step[i] = steps(outputs, 208);
        }
        const auto begin = [&](int row, Bits (&exact)[VECTORS]) {
            EVERY(VECTORS) exact[i] = weigh(zero(), every_32(blocks[row].sums), excess[i]);
        };
        const auto end = [&](int row, const Bits (&exact)[VECTORS]) {
            const Floats scale = all(blocks[row].scale);
            EVERY(VECTORS) sums.up[row][i] = fma(floats(exact[i]), mul(step[i], scale), sums.up[row][i]);
        };
        dot256<ROWS>(now, blocks, weights, begin, end);
    }
};

struct PlainQ5_K : PlainOfK {
    static constexpr ggml_type TYPE = GGML_TYPE_Q5_K;
    static constexpr size_t BYTES = 2 + 2 + 12 + 32 + 128;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Weights weights[VECTORS];
        Bits minima[VECTORS];
        Floats step[VECTORS], low_step[VECTORS];
        EVERY(VECTORS) {
            const uint8_t * const * outputs = sides + i * Vectors::SIDES;
            minima[i] = unpack(outputs, weights[i]);
            step[i] = steps(outputs, 0);
            low_step[i] = steps(outputs, 2);
        }
        const auto begin = [&](int, Bits (&exact)[VECTORS]) { EVERY(VECTORS) exact[i] = zero(); };
        const auto end = [&](int row, const Bits (&exact)[VECTORS]) {
            const Bits of_32 = every_32(blocks[row].pairs);
            const Floats scale = all(blocks[row].scale), less = all(-blocks[row].scale);
            EVERY(VECTORS) {
                const Bits low = fours(weigh(zero(), minima[i], of_32));
                sums.up[row][i] = fma(floats(exact[i]), mul(step[i], scale), sums.up[row][i]);
                sums.down[row][i] = fma(floats(low), mul(low_step[i], less), sums.down[row][i]);
            }
        };
        dot256<ROWS>(now, blocks, weights, begin, end);
    }

  private:
    // Returns eight minima and then the eight scales.
    static Bits unpack(const uint8_t * const * outputs, Weights & weights) {
        Bits tops = of_outputs(outputs, 16);
        EVERY(4) {
            const Bits pairs = of_outputs(outputs, 48 + 32 * i);
            weights.of[2 * i] = bits_or(bits_and(pairs, bytes(0xf)), bits_and(left<4>(tops), bytes(0x10)));
            weights.of[2 * i + 1] = bits_or(bits_and(right<4>(pairs), bytes(0xf)), bits_and(left<3>(tops), bytes(0x10)));
            tops = right<2>(tops);
        }
        weights.weave();
        uint64_t scale[Vectors::SIDES], minimum[Vectors::SIDES];
        for (int side = 0; side < Vectors::SIDES; ++side) ::unpack(outputs[side] + 4, scale[side], minimum[side]);
        const Bits both = sixteen(minimum, scale);
        EVERY(4) weights.scales[i] = chosen<1>(both, 8 + 2 * i);
        return both;
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
