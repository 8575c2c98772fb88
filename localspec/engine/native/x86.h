// Weights as llama.cpp keeps them on x86, multiplied by few rows.
//
// A weight is unpacked once, in registers, for up to 32 rows. Whole numbers are exact in any order; floats
// are added in that of llama.cpp's one-row kernels, so that a row's numbers are the same bits for any
// number of rows, and the same as without this file. Layouts: Q4_0 and Q4_K are tiles of eight outputs
// in turns of eight bytes (ggml-cpu/repack.cpp), all else is plain (ggml-common.h).

#pragma once

#include "rows.h"

namespace {

using Bits = Vectors::Bits;
using Floats = Vectors::Floats;
using Sides = const uint8_t *[Vectors::SIDES];

// The furthest of so many activations from zero, with its sign; the first, if there are two.
template <int COUNT>
float furthest(const float * x) {
    int32_t bits[COUNT], most = 0, at = COUNT;
    std::memcpy(bits, x, sizeof bits);
    for (int i = 0; i < COUNT; ++i) most = std::max(most, bits[i] & 0x7fffffff);
    for (int i = 0; i < COUNT; ++i) at = std::min(at, (bits[i] & 0x7fffffff) == most ? i : COUNT);
    return x[at];
}

// The nearest integers, even ones where there are two, of products up to a few hundred: added to a
// number of 2^23 and a half, a float keeps no fraction.
template <int COUNT>
void quantize(const float * x, float inverse, int8_t * q) {
    for (int i = 0; i < COUNT; ++i) {
        const float shifted = inverse * x[i] + 12582912.0f;
        int32_t bits;
        std::memcpy(&bits, &shifted, sizeof bits);
        q[i] = int8_t(std::min(bits - 0x4b400000, 127));
    }
}

// quantize_row_q8_0
inline void quantize(const float * x, Block32 & block) {
    const float peak = std::fabs(furthest<32>(x));
    quantize<32>(x, peak != 0.0f ? 127.0f / peak : 0.0f, block.q);
    block.sum = 0;
    for (int8_t q : block.q) block.sum += q;
    block.scale = ggml_fp16_to_fp32(ggml_fp32_to_fp16(peak / 127.0f));
}

// quantize_row_q8_K_ref
inline void quantize(const float * x, Block256 & block) {
    const float far = furthest<256>(x), inverse = far != 0.0f ? -127.0f / far : 0.0f;
    quantize<256>(x, inverse, block.q);
    for (int i = 0; i < 16; ++i) {
        int32_t sum = 0;
        for (int j = 0; j < 16; ++j) sum += block.q[16 * i + j];
        block.sums[i] = int16_t(sum);
    }
    std::fill(block.pairs + 8, block.pairs + 16, int16_t(0));
    for (int i = 0; i < 8; ++i) block.pairs[i] = int16_t(block.sums[2 * i] + block.sums[2 * i + 1]);
    block.scale = far != 0.0f ? 1.0f / inverse : 0.0f;
}

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

// Where weights fill the registers, sums are in memory, and rows come one after the other. Where there is
// less to do with a weight, sums are in registers, of eight rows.
#define EVERY_ROW _Pragma("GCC unroll 1") for (int row = 0; row < now; ++row)
#define EVERY_ROW_UNROLLED _Pragma("GCC unroll 8") for (int row = 0; row < now; ++row)

// Floats of each row for so many vectors of outputs.
template <int ROWS, int VECTORS> struct SumsOf {
    Floats up[ROWS][VECTORS], down[ROWS][VECTORS];
    explicit SumsOf(int now) {
        EVERY_ROW_UNROLLED EVERY(VECTORS) up[row][i] = down[row][i] = Vectors::zeros();
    }
};

// --- tiles of eight outputs ----------------------------------------------------------------------------

struct Packed : Vectors {
    static constexpr int UNIT = 8;
    static constexpr int MOST_ROWS = 1 << 30;  // a prompt too is faster than by llama.cpp's kernels
    static constexpr int AHEAD_BYTES = 8192;   // 4 KiB and 16 are slower

    template <int ROWS> using Sums = SumsOf<ROWS, 1>;

    template <int ROWS> static void store(int now, const Sums<ROWS> & sums, int count, float * out, size_t stride) {
        EVERY_ROW_UNROLLED store_tiles(out + row * stride, count, sub(sums.up[row][0], sums.down[row][0]));
    }
};

struct PackedQ4_0 : Packed {
    static constexpr ggml_type TYPE = GGML_TYPE_Q4_0;
    using Block = Block32;
    static constexpr int ROWS_AT_ONCE = 8, ROWS_UNROLLED = 8, WEIGHTS = 32;
    static constexpr size_t BYTES = (2 + 16) * UNIT;

    static void unpack(const Sides & sides, int half, Bits (&weights)[4]) {
        EVERY(2) {  // signed there; made unsigned, which the sum of activations undoes
            const Bits pairs = bits_xor(of_tile(sides, half, 16 + 64 * i), bytes(0x88));
            weights[i] = bits_and(pairs, bytes(0xf));
            weights[2 + i] = bits_and(right<4>(pairs), bytes(0xf));
        }
    }
    static Bits dot32(const Bits (&weights)[4], const int8_t * q) {
        Bits sums = zero();
        EVERY(4) sums = dot(sums, weights[i], every_8(q + 8 * i));
        return sums;
    }

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Bits one[4], two[4];
        unpack(sides, 0, one);
        unpack(sides, 1, two);
        const Floats step = steps_of_tiles(sides, 0);
        EVERY_ROW_UNROLLED {
            const Block & block = blocks[row];
            const Bits biased = fold(whole(dot32(one, block.q)), whole(dot32(two, block.q)));
            const Bits exact = add(biased, integers(-8 * block.sum));
            sums.up[row][0] = fma(floats(exact), mul(step, all(block.scale)), sums.up[row][0]);
        }
    }
};

struct PackedQ4_K : Packed {
    static constexpr ggml_type TYPE = GGML_TYPE_Q4_K;
    using Block = Block256;
    static constexpr int ROWS_AT_ONCE = 32, ROWS_UNROLLED = 1, WEIGHTS = 256;
    static constexpr size_t BYTES = (2 + 2 + 12 + 128) * UNIT;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Groups scale, minimum;
        for (int side = 0; side < SIDES; ++side) unpack(sides[side] + 32, scale[side], minimum[side]);
        Bits exact[ROWS][2];
        EVERY_ROW exact[row][0] = exact[row][1] = zero();
        EVERY(4) {
            const Scales both[2] = {scales<0>(scale, 2 * i), scales<1>(scale, 2 * i)};
            for (int half = 0; half < 2; half += HALVES_AT_ONCE) part(now, blocks, sides, i, half, both, exact);
        }
        Bits minima[4];
        EVERY(4) minima[i] = pairs(minimum, 2 * i);
        const Floats step = steps_of_tiles(sides, 0), low_step = steps_of_tiles(sides, 16);
        EVERY_ROW {
            const Block & block = blocks[row];
            Bits low = zero();
            EVERY(4) {
                low = weigh(low, minima[i], integers(load<int32_t>(reinterpret_cast<const uint8_t *>(block.pairs + 2 * i))));
            }
            const Floats scale = all(block.scale), high = floats(fold_weighed(exact[row][0], exact[row][1]));
            sums.up[row][0] = fma(high, mul(step, scale), sums.up[row][0]);
            sums.down[row][0] = fma(floats(low), mul(low_step, scale), sums.down[row][0]);
        }
    }

    // Eight times Q4_K's twelve bytes at once.
    static void unpack(const uint8_t * at, uint64_t (&scales)[8], uint64_t (&minima)[8]) {
        constexpr int AT_ONCE = sizeof(Bits) / sizeof(uint64_t);
        for (int i = 0; i < 8; i += AT_ONCE) {
            const Bits one = every_third(at + 12 * i, 0), two = every_third(at + 12 * i, 1);
            const Bits three = every_third(at + 12 * i, 2);
            Vectors::store(scales + i, six_bits(one, three));
            Vectors::store(minima + i, six_bits(two, right<4>(three)));
        }
    }
    static Bits six_bits(Bits low, Bits high) {
        const Bits upper = bits_or(bits_and(high, bytes(0x0f)), bits_and(right<2>(low), bytes(0x30)));
        return odd_of(bits_and(low, bytes(0x3f)), upper);
    }

    // Two groups of 32 weights, for some halves of the columns: an activation is read once for these.
    template <int ROWS>
    static void part(int now, const Block * blocks, const Sides & sides, int at, int half, const Scales (&scales)[2],
                     Bits (&sums)[ROWS][2]) {
        Bits low[HALVES_AT_ONCE][4], high[HALVES_AT_ONCE][4];
        EVERY(HALVES_AT_ONCE) unpack(sides, half + i, 128 + 256 * at, low[i], high[i]);
        EVERY_ROW {
            const int8_t * q = blocks[row].q + 64 * at;
            Bits lows[HALVES_AT_ONCE], highs[HALVES_AT_ONCE];
            dot32(low, q, lows);
            dot32(high, q + 32, highs);
            EVERY(HALVES_AT_ONCE) {
                sums[row][half + i] = weigh(sums[row][half + i], lows[i], highs[i], scales[half + i]);
            }
        }
    }

    static void unpack(const Sides & sides, int half, int at, Bits (&low)[4], Bits (&high)[4]) {
        EVERY(4) {
            const Bits pairs = of_tile(sides, half, at + 64 * i);
            low[i] = bits_and(pairs, bytes(0xf));
            high[i] = bits_and(right<4>(pairs), bytes(0xf));
        }
    }

    static void dot32(const Bits (&weights)[HALVES_AT_ONCE][4], const int8_t * q, Bits (&sums)[HALVES_AT_ONCE]) {
        EVERY(HALVES_AT_ONCE) sums[i] = zero();
        for (int eight = 0; eight < 4; ++eight) {
            const Bits all = every_8(q + 8 * eight);
            EVERY(HALVES_AT_ONCE) sums[i] = dot(sums[i], weights[i][eight], all);
        }
    }
};

// --- plain outputs -------------------------------------------------------------------------------------

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
    // rows stay in registers, and with them a quarter of the weights.
    template <int ROWS, typename Begin, typename End>
    static void dot256(int now, const Block * blocks, const Weights (&weights)[VECTORS], Begin begin, End end) {
        if constexpr (ROWS <= ROWS_IN_REGISTERS) {
            Bits sums[ROWS][VECTORS];
            EVERY_ROW_UNROLLED begin(row, sums[row]);
            EVERY(4) EVERY_ROW_UNROLLED dot64(i, weights, blocks[row].q, sums[row]);
            EVERY_ROW_UNROLLED end(row, sums[row]);
        } else {
            EVERY_ROW {
                Bits sums[VECTORS];
                begin(row, sums);
                EVERY(4) dot64(i, weights, blocks[row].q, sums);
                end(row, sums);
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
    static constexpr size_t BYTES = 128 + 64 + 16 + 2;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Weights weights[VECTORS];
        Bits excess[VECTORS];
        Floats step[VECTORS];
        EVERY(VECTORS) {
            const uint8_t * const * outputs = sides + i * Vectors::SIDES;
            const Bits bytes = unpack(outputs, weights[i]);
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

  private:
    // Returns the sixteen scales.
    static Bits unpack(const uint8_t * const * outputs, Weights & weights) {
        const Bits low = bytes(0xf), top = bytes(0x30);
        EVERY(2) {
            const Bits one = of_outputs(outputs, 64 * i), two = of_outputs(outputs, 64 * i + 32);
            const Bits tops = of_outputs(outputs, 128 + 32 * i);
            weights.of[4 * i] = bits_or(bits_and(one, low), bits_and(left<4>(tops), top));
            weights.of[4 * i + 1] = bits_or(bits_and(two, low), bits_and(left<2>(tops), top));
            weights.of[4 * i + 2] = bits_or(bits_and(right<4>(one), low), bits_and(tops, top));
            weights.of[4 * i + 3] = bits_or(bits_and(right<4>(two), low), bits_and(right<2>(tops), top));
        }
        weights.weave();
        const Bits scales = sixteen(outputs, 192);
        EVERY(4) weights.scales[i] = chosen<2>(scales, 4 * i);
        return scales;
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

using OfPacked = Formats<PackedQ4_0, PackedQ4_K>;
using OfPlain = Formats<PlainQ5_K, PlainQ6_K, PlainQ8_0, PlainIQ4_XS>;

}  // namespace
