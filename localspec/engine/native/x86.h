// Weights as llama.cpp keeps them on x86, multiplied by few rows.
//
// A weight is unpacked once, in registers, for all rows. Whole numbers are exact in any order; floats
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

#define EVERY_ROW _Pragma("GCC unroll 16") for (int row = 0; row < ROWS; ++row)

// --- tiles of eight outputs ----------------------------------------------------------------------------

struct Packed : Vectors {
    static constexpr int UNIT = 8, ROWS_AT_ONCE = Vectors::PACKED_ROWS;
    static constexpr int MOST_ROWS = 1 << 30;  // a prompt too is faster than by llama.cpp's kernels
    static constexpr int AHEAD_BYTES = 0;      // a core's own prefetcher follows a whole tile better

    template <int ROWS> struct Sums {
        Floats up[ROWS], down[ROWS];
        Sums() { EVERY_ROW up[row] = down[row] = zeros(); }
    };

    template <int ROWS> static void store(const Sums<ROWS> & sums, int count, float * out, size_t stride) {
        EVERY_ROW store_tiles(out + row * stride, count, sub(sums.up[row], sums.down[row]));
    }

    // Four bits of 64 activations for each column: those of the lower bits, then those of the upper.
    template <int HALF> static void nibbles(const Sides & sides, int at, int flip, Bits (&low)[4], Bits (&high)[4]) {
        EVERY(4) {
            const Bits pairs = bits_xor(of_tile<HALF>(sides, at + 64 * i), bytes(flip));
            low[i] = bits_and(pairs, bytes(0xf));
            high[i] = bits_and(right<4>(pairs), bytes(0xf));
        }
    }

    static Bits dot32(const Bits (&weights)[4], const int8_t * q) {
        Bits sums = zero();
        EVERY(4) sums = dot(sums, weights[i], every_8(q + 8 * i));
        return sums;
    }
};

struct PackedQ4_0 : Packed {
    static constexpr ggml_type TYPE = GGML_TYPE_Q4_0;
    using Block = Block32;
    static constexpr int WEIGHTS = 32;
    static constexpr size_t BYTES = (2 + 16) * UNIT;

    template <int HALF> static void half(const Sides & sides, Bits (&weights)[4]) {
        EVERY(2) {  // signed there; made unsigned, which the sum of activations undoes
            const Bits pairs = bits_xor(of_tile<HALF>(sides, 16 + 64 * i), bytes(0x88));
            weights[i] = bits_and(pairs, bytes(0xf));
            weights[2 + i] = bits_and(right<4>(pairs), bytes(0xf));
        }
    }

    template <int ROWS> static void multiply(const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Bits one[4], two[4];
        half<0>(sides, one);
        half<1>(sides, two);
        const Floats step = steps_of_tiles(sides, 0);
        EVERY_ROW {
            const Block & block = blocks[row];
            const Bits biased = fold(whole(dot32(one, block.q)), whole(dot32(two, block.q)));
            const Bits exact = add(biased, integers(-8 * block.sum));
            sums.up[row] = fma(floats(exact), mul(step, all(block.scale)), sums.up[row]);
        }
    }
};

struct PackedQ4_K : Packed {
    static constexpr ggml_type TYPE = GGML_TYPE_Q4_K;
    using Block = Block256;
    static constexpr int WEIGHTS = 256;
    static constexpr size_t BYTES = (2 + 2 + 12 + 128) * UNIT;

    template <int ROWS> static void multiply(const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        uint64_t scale[8][SIDES], minimum[8][SIDES];
        EVERY(8) {
            for (int side = 0; side < SIDES; ++side) {
                unpack(sides[side] + 32 + 12 * i, scale[i][side], minimum[i][side]);
            }
        }
        Bits ones[ROWS], twos[ROWS];
        EVERY_ROW ones[row] = twos[row] = zero();
        EVERY(4) {
            part<0>(blocks, sides, i, scales<0>(scale[2 * i], scale[2 * i + 1]), ones);
            part<1>(blocks, sides, i, scales<1>(scale[2 * i], scale[2 * i + 1]), twos);
        }
        Bits minima[4];
        EVERY(4) minima[i] = pairs(minimum[2 * i], minimum[2 * i + 1]);
        const Floats step = steps_of_tiles(sides, 0), low_step = steps_of_tiles(sides, 16);
        EVERY_ROW {
            const Block & block = blocks[row];
            Bits low = zero();
            EVERY(4) {
                low = weigh(low, minima[i], integers(load<int32_t>(reinterpret_cast<const uint8_t *>(block.pairs + 2 * i))));
            }
            const Floats scale = all(block.scale), exact = floats(fold_weighed(ones[row], twos[row]));
            sums.up[row] = fma(exact, mul(step, scale), sums.up[row]);
            sums.down[row] = fma(floats(low), mul(low_step, scale), sums.down[row]);
        }
    }

    // Two groups of 32 weights for half of the columns.
    template <int HALF, int ROWS>
    static void part(const Block * blocks, const Sides & sides, int at, const Scales & scales, Bits (&sums)[ROWS]) {
        Bits low[4], high[4];
        nibbles<HALF>(sides, 128 + 256 * at, 0, low, high);
        EVERY_ROW {
            const int8_t * q = blocks[row].q + 64 * at;
            sums[row] = weigh(sums[row], dot32(low, q), dot32(high, q + 32), scales);
        }
    }
};

// --- plain outputs -------------------------------------------------------------------------------------

struct Plain : Vectors {
    static constexpr int UNIT = 1, ROWS_AT_ONCE = Vectors::PLAIN_ROWS;
    static constexpr int MOST_ROWS = 32;     // from here on llama.cpp unpacks through memory, and is faster
    static constexpr int AHEAD_BYTES = 256;  // a core's own prefetcher stops at the end of each page

    template <int ROWS> struct Sums {
        Floats up[ROWS], down[ROWS];
        Sums() { EVERY_ROW up[row] = down[row] = zeros(); }
    };

    template <int ROWS> static void store(const Sums<ROWS> & sums, int count, float * out, size_t stride) {
        EVERY_ROW store_outputs(out + row * stride, count, sums.up[row], sums.down[row]);
    }

    // 256 unsigned weights of each output by the activations, in eight lanes each.
    static Bits dot256(Bits sums, const Bits (&weights)[8], const Bits (&scales)[8], const int8_t * q) {
        EVERY(8) sums = weigh(sums, products(weights[i], every_32(q + 32 * i)), scales[i]);
        return sums;
    }
};

struct PlainQ6_K : Plain {
    static constexpr ggml_type TYPE = GGML_TYPE_Q6_K;
    using Block = Block256;
    static constexpr int WEIGHTS = 256;
    static constexpr size_t BYTES = 128 + 64 + 16 + 2;

    template <int ROWS> static void multiply(const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        const Bits low = bytes(0xf), top = bytes(0x30);
        Bits weights[8], scales[8];
        EVERY(2) {
            const Bits one = of_outputs(sides, 64 * i), two = of_outputs(sides, 64 * i + 32);
            const Bits tops = of_outputs(sides, 128 + 32 * i);
            weights[4 * i] = bits_or(bits_and(one, low), bits_and(left<4>(tops), top));
            weights[4 * i + 1] = bits_or(bits_and(two, low), bits_and(left<2>(tops), top));
            weights[4 * i + 2] = bits_or(bits_and(right<4>(one), low), bits_and(tops, top));
            weights[4 * i + 3] = bits_or(bits_and(right<4>(two), low), bits_and(right<2>(tops), top));
        }
        const Bits bytes = sixteen(sides, 192);
        EVERY(8) scales[i] = chosen(bytes, 2 * i, 2 * i + 1);
        // Weights are 32 too large, and what that adds is taken away in the lanes where llama.cpp does.
        const Bits excess = negative16(left<5>(bytes));
        const Floats step = steps(sides, 208);
        EVERY_ROW {
            const Block & block = blocks[row];
            const Bits exact = dot256(weigh(zero(), every_32(block.sums), excess), weights, scales, block.q);
            sums.up[row] = fma(floats(exact), mul(step, all(block.scale)), sums.up[row]);
        }
    }
};

struct PlainQ5_K : Plain {
    static constexpr ggml_type TYPE = GGML_TYPE_Q5_K;
    using Block = Block256;
    static constexpr int WEIGHTS = 256;
    static constexpr size_t BYTES = 2 + 2 + 12 + 32 + 128;

    template <int ROWS> static void multiply(const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Bits weights[8], scales[8], tops = of_outputs(sides, 16);
        EVERY(4) {
            const Bits pairs = of_outputs(sides, 48 + 32 * i);
            weights[2 * i] = bits_or(bits_and(pairs, bytes(0xf)), bits_and(left<4>(tops), bytes(0x10)));
            weights[2 * i + 1] = bits_or(bits_and(right<4>(pairs), bytes(0xf)), bits_and(left<3>(tops), bytes(0x10)));
            tops = right<2>(tops);
        }
        uint64_t scale[SIDES], minimum[SIDES];
        for (int side = 0; side < SIDES; ++side) unpack(sides[side] + 4, scale[side], minimum[side]);
        const Bits both = sixteen(minimum, scale);
        EVERY(8) scales[i] = chosen(both, 8 + i, 8 + i);
        const Floats step = steps(sides, 0), low_step = steps(sides, 2);
        EVERY_ROW {
            const Block & block = blocks[row];
            const Bits exact = dot256(zero(), weights, scales, block.q);
            const Bits low = fours(weigh(zero(), both, every_32(block.pairs)));
            sums.up[row] = fma(floats(exact), mul(step, all(block.scale)), sums.up[row]);
            sums.down[row] = fma(floats(low), mul(low_step, all(-block.scale)), sums.down[row]);
        }
    }
};

struct PlainQ8_0 : Plain {
    static constexpr ggml_type TYPE = GGML_TYPE_Q8_0;
    using Block = Block32;
    static constexpr int WEIGHTS = 32;
    static constexpr size_t BYTES = 2 + 32;

    template <int ROWS> static void multiply(const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        const Bits weights = of_outputs(sides, 2);
        const Floats step = steps(sides, 0);
        EVERY_ROW {
            const Bits exact = whole(dot(zero(), unsigned_of(weights), turned(every_32(blocks[row].q), weights)));
            sums.up[row] = fma(floats(exact), mul(step, all(blocks[row].scale)), sums.up[row]);
        }
    }
};

struct PlainIQ4_XS : Plain {
    static constexpr ggml_type TYPE = GGML_TYPE_IQ4_XS;
    using Block = Block256;
    static constexpr int WEIGHTS = 256;
    static constexpr size_t BYTES = 2 + 2 + 4 + 128;

    template <int ROWS> static void multiply(const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        uint64_t scale[SIDES];
        for (int side = 0; side < SIDES; ++side) scale[side] = unpack(sides[side] + 2);
        const Bits all_scales = sixteen(scale, scale);
        Bits weights[8], scales[8];
        EVERY(8) weights[i] = of_table(kvalues_iq4nl, sides, 8 + 16 * i);
        EVERY(8) scales[i] = chosen(all_scales, i, i);
        const Floats step = steps(sides, 0);
        EVERY_ROW {
            const Block & block = blocks[row];
            Bits exact = zero();
            EVERY(8) {
                const Bits q = turned(every_32(block.q + 32 * i), weights[i]);
                exact = weigh(exact, products(unsigned_of(weights[i]), q), scales[i]);
            }
            sums.up[row] = fma(floats(exact), mul(step, all(block.scale)), sums.up[row]);
        }
    }
};

using OfPacked = Formats<PackedQ4_0, PackedQ4_K>;
using OfPlain = Formats<PlainQ5_K, PlainQ6_K, PlainQ8_0, PlainIQ4_XS>;

}  // namespace
