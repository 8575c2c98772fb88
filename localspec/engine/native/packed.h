// Q4_0 and Q4_K in tiles of eight outputs, which take turns of eight bytes (ggml-cpu/repack.cpp).

#pragma once

#include "activations.h"

namespace {

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

    // Of all outputs four weights in each vector, a lane for each output.
    static void unpack(const Sides & sides, Bits (&weights)[8]) {
        for (int i = 0; i < 2; ++i) {  // signed there; made unsigned, which the sum of activations undoes
            const Bits one = bits_xor(of_tile(sides, 0, 16 + 64 * i), bytes(0x88));
            const Bits two = bits_xor(of_tile(sides, 1, 16 + 64 * i), bytes(0x88));
            const Bits first = even_lanes(one, two), second = odd_lanes(one, two);
            weights[2 * i] = bits_and(first, bytes(0xf));
            weights[2 * i + 1] = bits_and(second, bytes(0xf));
            weights[2 * i + 4] = bits_and(right<4>(first), bytes(0xf));
            weights[2 * i + 5] = bits_and(right<4>(second), bytes(0xf));
        }
    }

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Bits weights[8];
        unpack(sides, weights);
        const Floats step = steps_of_tiles(sides, 0);
        EVERY_ROW_UNROLLED {
            const Block & block = blocks[row];
            Bits one = zero(), two = zero();
            EVERY(4) {
                one = dot(one, weights[i], every_4(block.q + 4 * i));
                two = dot(two, weights[4 + i], every_4(block.q + 16 + 4 * i));
            }
            const Bits exact = less(in_order(whole(one, two)), integers(block.excess));
            sums.up[row][0] = fma(floats(exact), mul(step, all(block.scale)), sums.up[row][0]);
        }
    }
};

struct PackedQ4_K : Packed {
    static constexpr ggml_type TYPE = GGML_TYPE_Q4_K;
    using Block = Block256;
    static constexpr int ROWS_AT_ONCE = 32, ROWS_UNROLLED = FEW_ROWS, WEIGHTS = 256;
    static constexpr size_t BYTES = (2 + 2 + 12 + 128) * UNIT;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        const Groups groups = groups_of(sides, 32);
        Bits exact[ROWS][2];
        every<ROWS <= FEW_ROWS>(now, [&](int row) { exact[row][0] = exact[row][1] = zero(); });
        EVERY(4) {
            const Scales both[2] = {scales<0>(groups, 2 * i), scales<1>(groups, 2 * i)};
            for (int group = 0; group < 2; group += GROUPS_AT_ONCE) {
                for (int half = 0; half < 2; half += HALVES_AT_ONCE) part(now, blocks, sides, i, group, half, both, exact);
            }
        }
        Bits minima[4];
        EVERY(4) minima[i] = minima_of(groups, 2 * i);
        const Floats step = steps_of_tiles(sides, 0), low_step = steps_of_tiles(sides, 16);
        every<ROWS <= FEW_ROWS>(now, [&](int row) {
            const Block & block = blocks[row];
            Bits low = zero();
            EVERY(4) {
                low = weigh(low, minima[i], integers(load<int32_t>(reinterpret_cast<const uint8_t *>(block.pairs + 2 * i))));
            }
            const Floats scale = all(block.scale), high = floats(fold_weighed(exact[row][0], exact[row][1]));
            sums.up[row][0] = fma(high, mul(step, scale), sums.up[row][0]);
            sums.down[row][0] = fma(floats(low), mul(low_step, scale), sums.down[row][0]);
        });
    }

    // Of two groups of 32 weights one or both, for half of the columns or all: as much as there are registers for.
    template <int ROWS>
    static void part(int now, const Block * blocks, const Sides & sides, int at, int group, int half,
                     const Scales (&scales)[2], Bits (&sums)[ROWS][2]) {
        Bits weights[HALVES_AT_ONCE][GROUPS_AT_ONCE][4];
        EVERY(HALVES_AT_ONCE) EACH(of, GROUPS_AT_ONCE) unpack(sides, half + i, 128 + 256 * at, group + of, weights[i][of]);
        every<ROWS <= FEW_ROWS>(now, [&](int row) {
            Bits whole[HALVES_AT_ONCE][GROUPS_AT_ONCE];
            EACH(of, GROUPS_AT_ONCE) dot32(weights, of, blocks[row].q + 64 * at + 32 * (group + of), whole);
            EVERY(HALVES_AT_ONCE) {
                sums[row][half + i] = weigh(sums[row][half + i], whole[i], scales[half + i], group);
            }
        });
    }

    static void unpack(const Sides & sides, int half, int at, int group, Bits (&weights)[4]) {
        EVERY(4) {
            const Bits pairs = of_tile(sides, half, at + 64 * i);
            weights[i] = bits_and(group ? right<4>(pairs) : pairs, bytes(0xf));
        }
    }

    // An activation is read once for all columns.
    static void dot32(const Bits (&weights)[HALVES_AT_ONCE][GROUPS_AT_ONCE][4], int of, const int8_t * q,
                      Bits (&whole)[HALVES_AT_ONCE][GROUPS_AT_ONCE]) {
        EVERY(HALVES_AT_ONCE) whole[i][of] = zero();
        for (int eight = 0; eight < 4; ++eight) {
            const Bits all = every_8(q + 8 * eight);
            EVERY(HALVES_AT_ONCE) whole[i][of] = dot(whole[i][of], weights[i][of][eight], all);
        }
    }
};

}  // namespace
