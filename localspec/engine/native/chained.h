// Q6_K where a CPU adds four products of bytes to a lane at once (AVX-512 VNNI).
//
// A group of sixteen weights is in one lane, four vectors deep, and each lane is weighed by the scale of its
// group. llama.cpp has a group in four lanes of one vector, for which each needs half as many instructions
// again. Floats are added in another order here; so all rows are computed here, one alone and a prompt.

#pragma once

#include "plain.h"

namespace {

// As weights that are `chained`. And of each group the sum -32 times, since weights are 32 too large.
struct alignas(64) Chained256 {
    int8_t q[256];
    int32_t excess[16];
    float scale;
};

inline void quantize(const float * x, Chained256 & block) {
    Block256 plain;
    quantize(x, plain);
    EVERY(2) Vectors::chained(plain.q + 128 * i, block.q + 128 * i);
    Vectors::chained(plain.sums, -32, block.excess);
    block.scale = plain.scale;
}

struct ChainedQ6_K : Plain {
    static constexpr ggml_type TYPE = GGML_TYPE_Q6_K;
    using Block = Chained256;
    static constexpr int MOST_ROWS = 1 << 30;
    static constexpr int ROWS_AT_ONCE = 32, ROWS_UNROLLED = 1, WEIGHTS = 256;
    static constexpr size_t BYTES = OfQ6_K::BYTES;
    static constexpr int VECTORS = Vectors::PLAIN_VECTORS, SIDES = VECTORS * Vectors::SIDES;
    using Sides = const uint8_t *[SIDES];

    template <int ROWS> using Sums = SumsOf<ROWS, VECTORS>;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Bits weights[VECTORS][8];
        Floats scales[VECTORS][2];
        EVERY(VECTORS) {
            const uint8_t * const * outputs = sides + i * Vectors::SIDES;
            const Bits sixteen = OfQ6_K::scales(outputs);
            EACH(quarter, 4) OfQ6_K::unpack(outputs, quarter, weights[i][2 * quarter], weights[i][2 * quarter + 1]);
            chained(weights[i]);
            EACH(half, 2) scales[i][half] = mul(steps(outputs, 208), chained(sixteen, half));
        }
        EVERY_ROW {
            Floats found[VECTORS];
            EVERY(VECTORS) found[i] = zeros();
            EACH(half, 2) dot128(half, blocks[row], weights, scales, found);
            EVERY(VECTORS) sums.up[row][i] = fma(found[i], all(blocks[row].scale), sums.up[row][i]);
        }
    }

  private:
    static void dot128(int half, const Block & block, const Bits (&weights)[VECTORS][8],
                       const Floats (&scales)[VECTORS][2], Floats (&sums)[VECTORS]) {
        Bits exact[VECTORS];
        EVERY(VECTORS) exact[i] = every_32(block.excess + 8 * half);
        EACH(four, 4) {
            const Bits q = every_32(block.q + 128 * half + 32 * four);
            EVERY(VECTORS) exact[i] = dot(exact[i], weights[i][4 * half + four], q);
        }
        EVERY(VECTORS) sums[i] = fma(floats(exact[i]), scales[i][half], sums[i]);
    }
};

}  // namespace
