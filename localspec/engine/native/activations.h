// Activations in eight bits on x86, as llama.cpp makes them, and what the formats of weights share.

#pragma once

#include "rows.h"

namespace {

using Bits = Vectors::Bits;
using Floats = Vectors::Floats;
using Sides = const uint8_t *[Vectors::SIDES];

// The largest of so many activations, and the largest of their negatives.
template <int COUNT>
void ends(const float * x, float & high, float & low) {
    Floats most = Vectors::of_floats(x), least = most;
    for (int i = Vectors::LANES; i < COUNT; i += Vectors::LANES) {
        most = Vectors::max(most, Vectors::of_floats(x + i));
        least = Vectors::min(least, Vectors::of_floats(x + i));
    }
    high = Vectors::highest(most), low = Vectors::highest(Vectors::sub(Vectors::zeros(), least));
}

// The nearest integers, even ones where there are two, of products up to a few hundred: added to a
// number of 2^23 and a half, a float keeps no fraction. Returns their sum, lane by lane.
template <int COUNT>
Bits quantize(const float * x, float inverse, int8_t * q) {
    const Floats all = Vectors::all(inverse), whole = Vectors::all(12582912.0f);
    Bits sum = Vectors::zero();
    for (int i = 0; i < COUNT; i += Vectors::LANES) {
        const Floats shifted = Vectors::add(Vectors::mul(all, Vectors::of_floats(x + i)), whole);
        const Bits number = Vectors::least(Vectors::bits_less(shifted, 0x4b400000), 127);
        Vectors::store_low_bytes(q + i, number);
        sum = Vectors::add(sum, number);
    }
    return sum;
}

// quantize_row_q8_0
inline void quantize(const float * x, Block32 & block) {
    float high, low;
    ends<32>(x, high, low);
    const float peak = std::max(high, low);
    block.excess = 8 * Vectors::total(quantize<32>(x, peak != 0.0f ? 127.0f / peak : 0.0f, block.q));
    block.scale = Vectors::halved(peak / 127.0f);
}

// quantize_row_q8_K_ref
inline void quantize(const float * x, Block256 & block) {
    float high, low;
    ends<256>(x, high, low);
    // That which is furthest from zero, with its sign; the first, if there are two.
    const float far = high == low ? *std::find_if(x, x + 255, [&](float each) { return std::fabs(each) == high; })
                                  : high > low ? high : -low;
    const float inverse = far != 0.0f ? -127.0f / far : 0.0f;
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

// Where weights fill the registers, sums of many rows are in memory, and rows come one after the other. Where
// there is less to do with a weight, or rows are few, sums are in registers.
#define EVERY_ROW _Pragma("GCC unroll 1") for (int row = 0; row < now; ++row)
#define EVERY_ROW_UNROLLED _Pragma("GCC unroll 8") for (int row = 0; row < now; ++row)

// Of few rows each has its own code.
template <bool FEW, typename Each>
[[gnu::always_inline]] inline void every(int now, const Each & each) {
    if constexpr (FEW) { EVERY_ROW_UNROLLED each(row); } else { EVERY_ROW each(row); }
}

// Floats of each row for so many vectors of outputs.
template <int ROWS, int VECTORS> struct SumsOf {
    Floats up[ROWS][VECTORS], down[ROWS][VECTORS];
    explicit SumsOf(int now) {
        EVERY_ROW_UNROLLED EVERY(VECTORS) up[row][i] = down[row][i] = Vectors::zeros();
    }
};

}  // namespace
