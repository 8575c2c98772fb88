// Weights as llama.cpp keeps them on ARM, multiplied by few rows.
//
// A weight is unpacked once, in registers, for all rows. Whole numbers are exact in any order; floats
// are added in that of llama.cpp's one-row kernels, also where that differs by layout. Weights lie in
// tiles of four or eight outputs (ggml-cpu/repack.cpp): in turns of four bytes where the CPU multiplies
// vectors (dotprod), of eight where it multiplies pairs of rows by pairs of outputs (i8mm). Which of the
// two it is decides when this is compiled, there as here.

#pragma once

#include "ggml-cpu.h"
#include "quants.h"
#include "rows.h"

namespace {

#define EVERY_ROW _Pragma("GCC unroll 8") for (int row = 0; row < ROWS; ++row)

// Activations are made whole numbers by llama.cpp's own functions: their bits depend on the compiler.
inline void quantize(const float * x, Block32 & block) {
    block_q8_0 found;
    quantize_row_q8_0(x, &found, 32);
    std::memcpy(block.q, found.qs, sizeof block.q);
    block.scale = ggml_fp16_to_fp32(found.d);
}

inline void quantize(const float * x, Block256 & block) {
    block_q8_K found;
    quantize_row_q8_K(x, &found, 256);
    std::memcpy(block.q, found.qs, sizeof block.q);
    std::memcpy(block.sums, found.bsums, sizeof block.sums);
    for (int i = 0; i < 8; ++i) block.pairs[i] = int16_t(block.sums[2 * i] + block.sums[2 * i + 1]);
    block.scale = found.d;
}

// Tiles of OUTPUTS, four of which are computed at once: a quarter of 16 bytes from each turn.
template <int OUTPUTS>
struct Packed {
    static constexpr int UNIT = OUTPUTS, SIDES = 1, ROWS_AT_ONCE = 8, ROWS_UNROLLED = 8;
    static constexpr int MOST_ROWS = 32;   // a prompt is llama.cpp's
    static constexpr int AHEAD_BYTES = 0;  // a core's own prefetcher follows a whole tile better
    static constexpr int FOURS = OUTPUTS / 4;
    using Sides = const uint8_t *[SIDES];

    template <int ROWS> struct Sums {
        Four of[FOURS][ROWS];
        explicit Sums(int) {
            for (auto & four : of) EVERY_ROW four[row] = vdupq_n_f32(0.0f);
        }
    };

    template <int ROWS> static void store(int, const Sums<ROWS> & sums, int, float * out, size_t stride) {
        for (int four = 0; four < FOURS; ++four) {
            EVERY_ROW vst1q_f32(out + row * stride + 4 * four, sums.of[four][row]);
        }
    }

    static Four steps(const uint8_t * at) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at))); }

    // Vector i of the bytes of some outputs; four vectors have a byte for each of 16 activations.
    static uint8x16_t of_tile(const uint8_t * at, int four, int i) {
        const int turn = Dots::EIGHT_BYTES ? 8 * OUTPUTS * (i / 2) + 32 * four + 16 * (i % 2)
                                           : 4 * OUTPUTS * i + 16 * four;
        return vld1q_u8(at + turn);
    }
    static Bytes low(uint8x16_t pairs) { return vreinterpretq_s8_u8(vandq_u8(pairs, vdupq_n_u8(0xf))); }
    static Bytes high(uint8x16_t pairs) { return vreinterpretq_s8_u8(vshrq_n_u8(pairs, 4)); }
    template <int TO> static Bytes with(Bytes bits, uint8x16_t more) {
        return vreinterpretq_s8_u8(vorrq_u8(vreinterpretq_u8_s8(bits), vshlq_n_u8(more, TO)));
    }

    // Calls `use` with each row and its products with these weights, from activation `at` on.
    template <int ROWS, int VECTORS, typename Block, typename Use>
    static void multiply_rows(const Bytes (&weights)[VECTORS], const Block * blocks, int at, const Use & use) {
        _Pragma("GCC unroll 8") for (int row = 0; row < ROWS; row += Dots::TOGETHER) {
            const int other = row + 1 < ROWS ? row + 1 : row;
            Dots whole;
            _Pragma("GCC unroll 2") for (int i = 0; i < VECTORS / 4; ++i) {
                whole.multiply(weights + 4 * i, blocks[row].q + at + 16 * i, blocks[other].q + at + 16 * i);
            }
            use(row, whole.row());
            if (Dots::TOGETHER == 2 && row + 1 < ROWS) use(row + 1, whole.other_row());
        }
    }
};

template <int OUTPUTS>
struct PackedQ4_0 : Packed<OUTPUTS> {
    using Tile = Packed<OUTPUTS>;
    using Block = Block32;
    static constexpr ggml_type TYPE = GGML_TYPE_Q4_0;
    static constexpr int WEIGHTS = 32, SCALES = 2 * OUTPUTS;
    static constexpr size_t BYTES = (2 + 16) * OUTPUTS;

    template <int ROWS>
    static void multiply(int, const Block * blocks, const typename Tile::Sides & sides,
                         typename Tile::template Sums<ROWS> & sums) {
        for (int four = 0; four < Tile::FOURS; ++four) {
            Bytes weights[8];
            EVERY(4) {  // signed four bits, sixteen times as large
                const uint8x16_t pairs = Tile::of_tile(sides[0] + SCALES, four, i);
                weights[i] = vreinterpretq_s8_u8(vshlq_n_u8(pairs, 4));
                weights[4 + i] = vreinterpretq_s8_u8(vandq_u8(pairs, vdupq_n_u8(0xf0)));
            }
            const Four step = Tile::steps(sides[0] + 8 * four);
            auto & sum = sums.of[four];
            Tile::template multiply_rows<ROWS>(weights, blocks, 0, [&](int row, Integers whole) {
                sum[row] = vfmaq_f32(sum[row], vcvtq_n_f32_s32(whole, 4), vmulq_n_f32(step, blocks[row].scale));
            });
        }
    }
};

// Vectors of 256 bits make llama.cpp pack Q4_0 by eight outputs where it can.
inline bool by_eight(const ggml_tensor * weights) {
    return ggml_cpu_get_sve_cnt() == 32 && weights->ne[1] % 8 == 0;
}
template <> inline bool fits<PackedQ4_0<8>>(const ggml_tensor * weights) {
    return weights->type == GGML_TYPE_Q4_0 && by_eight(weights);
}
template <> inline bool fits<PackedQ4_0<4>>(const ggml_tensor * weights) {
    return weights->type == GGML_TYPE_Q4_0 && !by_eight(weights);
}

struct PackedQ8_0 : Packed<4> {
    static constexpr ggml_type TYPE = GGML_TYPE_Q8_0;
    using Block = Block32;
    static constexpr int WEIGHTS = 32;
    static constexpr size_t BYTES = (2 + 32) * UNIT;

    template <int ROWS> static void multiply(int, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Bytes weights[8];
        EVERY(8) weights[i] = vreinterpretq_s8_u8(of_tile(sides[0] + 8, 0, i));
        const Four step = steps(sides[0]);
        multiply_rows<ROWS>(weights, blocks, 0, [&](int row, Integers whole) {
            const Four exact = vcvtq_f32_s32(whole);
            sums.of[0][row] = vfmaq_f32(sums.of[0][row], exact, vmulq_n_f32(step, blocks[row].scale));
        });
    }
};

// A product that is taken away from a sum, as GCC from 11 on compiles vmlsq_f32: in two roundings.
inline Four minus(Four sum, Four a, Four b) {
#if defined(__clang__) || __GNUC__ < 11
    return vfmsq_f32(sum, a, b);
#else
    return vsubq_f32(sum, vmulq_f32(a, b));
#endif
}

// Q4_K and Q5_K, of which the latter has a fifth bit of each weight before the four.
template <bool FIVE>
struct PackedOfK : Packed<8> {
    static constexpr ggml_type TYPE = FIVE ? GGML_TYPE_Q5_K : GGML_TYPE_Q4_K;
    using Block = Block256;
    static constexpr int WEIGHTS = 256, TOPS = 128, FOUR_BITS = FIVE ? TOPS + 256 : TOPS;
    static constexpr size_t BYTES = (2 + 2 + 12 + 128 + (FIVE ? 32 : 0)) * UNIT;
    // llama.cpp adds both halves of 64 weights before it makes a float of them; or it does not, and then
    // minima of five bits go with each 64 instead of each 256.
    static constexpr bool HALVES_APART = Dots::EIGHT_BYTES, MINIMA_AT_ONCE = FIVE && HALVES_APART;

    template <int ROWS> static void multiply(int, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        alignas(8) uint64_t scale[8], minimum[8];
        EVERY(8) unpack(sides[0] + 32 + 12 * i, scale[i], minimum[i]);
        for (int four = 0; four < FOURS; ++four) {
            const Four step = steps(sides[0] + 8 * four), low_step = steps(sides[0] + 16 + 8 * four);
            auto & sum = sums.of[four];
            for (int part = 0; part < 4; ++part) {
                sixty_four<ROWS>(blocks, sides[0], four, part, of_four(scale[2 * part], four),
                                 of_four(scale[2 * part + 1], four), step, sum);
                if (MINIMA_AT_ONCE) take<ROWS>(blocks, minimum, four, 2 * part, 2 * part + 2, low_step, sum);
            }
            if (!MINIMA_AT_ONCE) take<ROWS>(blocks, minimum, four, 0, 8, low_step, sum);
        }
    }

  private:
    // Bytes of four outputs.
    static int16x4_t of_four(uint64_t bytes, int four) {
        return vget_low_s16(vmovl_s8(vcreate_s8(bytes >> 32 * four)));
    }

    template <int ROWS>
    static void sixty_four(const Block * blocks, const uint8_t * tile, int four, int part, int16x4_t low_scale,
                           int16x4_t high_scale, Four step, Four (&sums)[ROWS]) {
        Bytes lows[8], highs[8];
        EVERY(8) {
            const uint8x16_t pairs = of_tile(tile + FOUR_BITS + 256 * part, four, i);
            lows[i] = low(pairs);
            highs[i] = high(pairs);
            if constexpr (FIVE) {
                const uint8x16_t tops = vshlq_u8(of_tile(tile + TOPS, four, i), vdupq_n_s8(int8_t(-2 * part)));
                lows[i] = with<4>(lows[i], vandq_u8(tops, vdupq_n_u8(1)));
                highs[i] = with<3>(highs[i], vandq_u8(tops, vdupq_n_u8(2)));
            }
        }
        const Integers one = vmovl_s16(low_scale), two = vmovl_s16(high_scale);
        Integers wholes[ROWS];
        const auto add = [&](int row, Integers whole) {
            sums[row] = vfmaq_f32(sums[row], vmulq_n_f32(step, blocks[row].scale), vcvtq_f32_s32(whole));
        };
        multiply_rows<ROWS>(lows, blocks, 64 * part, [&](int row, Integers whole) {
            wholes[row] = vmulq_s32(whole, one);
            if (HALVES_APART) add(row, wholes[row]);
        });
        multiply_rows<ROWS>(highs, blocks, 64 * part + 32, [&](int row, Integers whole) {
            add(row, HALVES_APART ? vmulq_s32(whole, two) : vmlaq_s32(wholes[row], whole, two));
        });
    }

    // What is taken away for the minima of groups of 32 weights.
    template <int ROWS>
    static void take(const Block * blocks, const uint64_t (&minimum)[8], int four, int from, int to, Four low_step,
                     Four (&sums)[ROWS]) {
        EVERY_ROW {
            Integers low = vdupq_n_s32(0);
            for (int i = from; i < to; ++i) {
                low = vmlal_n_s16(low, of_four(minimum[i], four), blocks[row].pairs[i]);
            }
            sums[row] = minus(sums[row], vcvtq_f32_s32(low), vmulq_n_f32(low_step, blocks[row].scale));
        }
    }
};

using PackedQ4_K = PackedOfK<false>;
using PackedQ5_K = PackedOfK<true>;

struct PackedQ6_K : Packed<8> {
    static constexpr ggml_type TYPE = GGML_TYPE_Q6_K;
    using Block = Block256;
    static constexpr int WEIGHTS = 256, SCALES = 16, LOWS = 144, TOPS = LOWS + 1024;
    static constexpr size_t BYTES = (128 + 64 + 16 + 2) * UNIT;

    template <int ROWS> static void multiply(int, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        for (int four = 0; four < FOURS; ++four) {
            Integers wholes[ROWS];
            EVERY_ROW wholes[row] = vdupq_n_s32(0);
            for (int i = 0; i < 8; ++i) thirty_two<ROWS>(blocks, sides[0], four, i / 4, i % 4, wholes);
            const Four step = steps(sides[0] + 8 * four);
            EVERY_ROW {
                const Four scale = vmulq_n_f32(step, blocks[row].scale), exact = vcvtq_f32_s32(wholes[row]);
                sums.of[four][row] = plus(sums.of[four][row], exact, scale);
            }
        }
    }

  private:
    // In half of a block, 16 weights by their lower bits and the 16 that are 64 further by their upper.
    template <int ROWS>
    static void thirty_two(const Block * blocks, const uint8_t * tile, int four, int half, int part,
                           Integers (&wholes)[ROWS]) {
        const uint8_t * lower = tile + LOWS + 512 * half + 128 * part;
        const uint8_t * upper = tile + TOPS + 256 * half + 128 * (part % 2);
        Bytes lows[4], highs[4];
        EVERY(4) {
            const uint8x16_t pairs = of_tile(lower, four, i);
            const uint8x16_t tops = vshlq_u8(of_tile(upper, four, i), vdupq_n_s8(int8_t(part < 2 ? 0 : -2)));
            const Bytes excess = vdupq_n_s8(32);
            lows[i] = vsubq_s8(with<4>(low(pairs), vandq_u8(tops, vdupq_n_u8(0x03))), excess);
            highs[i] = vsubq_s8(with<0>(high(pairs), vandq_u8(tops, vdupq_n_u8(0x30))), excess);
        }
        const int group = 8 * half + part, at = 128 * half + 16 * part;
        add<ROWS>(blocks, lows, at, scale(tile, four, group), wholes);
        add<ROWS>(blocks, highs, at + 64, scale(tile, four, group + 4), wholes);
    }

    static Integers scale(const uint8_t * tile, int four, int group) {
        return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(load<uint32_t>(tile + SCALES + 8 * group + 4 * four)))));
    }

    template <int ROWS>
    static void add(const Block * blocks, const Bytes (&weights)[4], int at, Integers scale, Integers (&wholes)[ROWS]) {
        multiply_rows<ROWS>(weights, blocks, at,
                            [&](int row, Integers whole) { wholes[row] = vmlaq_s32(wholes[row], whole, scale); });
    }

    // In turns of four bytes GCC fuses llama.cpp's product and sum, which are two statements.
    static Four plus(Four sum, Four a, Four b) {
#if !defined(__clang__)
        if (!Dots::EIGHT_BYTES) return vfmaq_f32(sum, a, b);
#endif
        return vaddq_f32(sum, vmulq_f32(a, b));
    }
};

// One output at a time: llama.cpp has no tiles of this.
struct PlainIQ4_XS {
    static constexpr ggml_type TYPE = GGML_TYPE_IQ4_XS;
    using Block = Block256;
    static constexpr int UNIT = 1, SIDES = 1, ROWS_AT_ONCE = 8, ROWS_UNROLLED = 8, MOST_ROWS = 32, AHEAD_BYTES = 256;
    static constexpr int WEIGHTS = 256;
    static constexpr size_t BYTES = 2 + 2 + 4 + 128;
    using Sides = const uint8_t *[SIDES];

    template <int ROWS> struct Sums {
        float of[ROWS] = {};
        explicit Sums(int) {}
    };

    template <int ROWS> static void store(int, const Sums<ROWS> & sums, int, float * out, size_t stride) {
        EVERY_ROW out[row * stride] = sums.of[row];
    }

    template <int ROWS> static void multiply(int, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        const Bytes table = vld1q_s8(kvalues_iq4nl);
        const uint64_t scales = unpack(sides[0] + 2);
        Bytes lower[8], upper[8];
        EVERY(8) {
            const uint8x16_t pairs = vld1q_u8(sides[0] + 8 + 16 * i);
            lower[i] = vqtbl1q_s8(table, vandq_u8(pairs, vdupq_n_u8(0xf)));
            upper[i] = vqtbl1q_s8(table, vshrq_n_u8(pairs, 4));
        }
        const float step = ggml_fp16_to_fp32(load<ggml_fp16_t>(sides[0]));
        EVERY_ROW {
            const Block & block = blocks[row];
            Integers whole = vdupq_n_s32(0);
            EVERY(8) {
                const Integers half = vdotq_s32(vdupq_n_s32(0), lower[i], vld1q_s8(block.q + 32 * i));
                const Integers both = vdotq_s32(half, upper[i], vld1q_s8(block.q + 32 * i + 16));
                whole = vmlaq_n_s32(whole, both, int8_t(scales >> 8 * i));
            }
            sums.of[row] = std::fma(step * block.scale, float(vaddvq_s32(whole)), sums.of[row]);
        }
    }
};

using OfPacked = Formats<PackedQ4_0<4>, PackedQ4_0<8>, PackedQ4_K, PackedQ5_K, PackedQ6_K, PackedQ8_0>;
using OfPlain = Formats<PlainIQ4_XS>;

}  // namespace
