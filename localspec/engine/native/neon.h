// Vectors of ARM: NEON with dot products, with i8mm or without.
//
// What arm.h and attention.h ask of an instruction set. Floats are as many as a register has halves, two
// registers of them: sums in both run side by side, and one alone would wait for itself.

#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace {

using Bytes = int8x16_t;
using Integers = int32x4_t;
using Four = float32x4_t;

struct Vectors {
    struct Floats { Four low, high; };
    static constexpr int LANES = 8;

    static Floats zeros() { return all(0.0f); }
    static Floats all(float value) { return {vdupq_n_f32(value), vdupq_n_f32(value)}; }
    static Floats mul(Floats a, Floats b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
    static Floats sub(Floats a, Floats b) { return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)}; }
    static Floats add(Floats a, Floats b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
    static Floats max(Floats a, Floats b) { return {vmaxq_f32(a.low, b.low), vmaxq_f32(a.high, b.high)}; }
    static Floats fma(Floats a, Floats b, Floats c) {
        return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
    }
    static Floats of_floats(const float * at) { return {vld1q_f32(at), vld1q_f32(at + 4)}; }
    static void store(float * at, Floats a) { vst1q_f32(at, a.low), vst1q_f32(at + 4, a.high); }
    static Floats of_halves(const void * at) {
        const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(static_cast<const uint16_t *>(at)));
        return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
    }
    static float first(Floats a) { return vgetq_lane_f32(a.low, 0); }
    static float highest(Floats a) { return vmaxvq_f32(vmaxq_f32(a.low, a.high)); }
    static float total(Floats a) { return vaddvq_f32(vaddq_f32(a.low, a.high)); }
    // The sum of each vector in its lane.
    static Floats totals(const Floats (&a)[LANES]) { return {totals_of_four(a), totals_of_four(a + 4)}; }
    // Times two to what the lowest bits of `by` say; and only where x is above a limit, else zero.
    static Floats raised(Floats a, Floats by) { return {raised(a.low, by.low), raised(a.high, by.high)}; }
    static Floats where_above(Floats x, float limit, Floats a) {
        return {where_above(x.low, limit, a.low), where_above(x.high, limit, a.high)};
    }

#if defined(__ARM_FEATURE_MATMUL_INT8)
    static constexpr const char * NAME = "NEON_I8MM";
#else
    static constexpr const char * NAME = "NEON_DOTPROD";
#endif

  private:
    static Four totals_of_four(const Floats * a) {  // halves, pairs, all
        Four sums[4];
        for (int i = 0; i < 4; ++i) sums[i] = vaddq_f32(a[i].low, a[i].high);
        return vpaddq_f32(vpaddq_f32(sums[0], sums[1]), vpaddq_f32(sums[2], sums[3]));
    }
    static Four raised(Four a, Four by) {
        const Integers exponents = vshlq_n_s32(vreinterpretq_s32_f32(by), 23);
        return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), exponents));
    }
    static Four where_above(Four x, float limit, Four a) {
        return vreinterpretq_f32_u32(vandq_u32(vcgtq_f32(x, vdupq_n_f32(limit)), vreinterpretq_u32_f32(a)));
    }
};

// Four outputs by 16 activations of as many rows as one instruction multiplies. Their weights are four
// vectors, in the order of the layout.
#if defined(__ARM_FEATURE_MATMUL_INT8)
struct Dots {
    static constexpr bool EIGHT_BYTES = true;
    static constexpr int TOGETHER = 2;
    Integers one = vdupq_n_s32(0), two = vdupq_n_s32(0);  // the first two outputs by both rows; the others

    void multiply(const Bytes * weights, const int8_t * q, const int8_t * other) {
        const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(q)), b = vreinterpretq_s64_s8(vld1q_s8(other));
        const Bytes early = vreinterpretq_s8_s64(vzip1q_s64(a, b)), late = vreinterpretq_s8_s64(vzip2q_s64(a, b));
        one = vmmlaq_s32(vmmlaq_s32(one, early, weights[0]), late, weights[2]);
        two = vmmlaq_s32(vmmlaq_s32(two, early, weights[1]), late, weights[3]);
    }
    Integers row() const { return joined(vget_low_s32(one), vget_low_s32(two)); }
    Integers other_row() const { return joined(vget_high_s32(one), vget_high_s32(two)); }

  private:
    static Integers joined(int32x2_t a, int32x2_t b) { return vcombine_s32(a, b); }
};
#else
struct Dots {
    static constexpr bool EIGHT_BYTES = false;
    static constexpr int TOGETHER = 1;
    Integers sums = vdupq_n_s32(0);

    void multiply(const Bytes * weights, const int8_t * q, const int8_t *) {
        const Bytes a = vld1q_s8(q);
        sums = vdotq_laneq_s32(sums, weights[0], a, 0);
        sums = vdotq_laneq_s32(sums, weights[1], a, 1);
        sums = vdotq_laneq_s32(sums, weights[2], a, 2);
        sums = vdotq_laneq_s32(sums, weights[3], a, 3);
    }
    Integers row() const { return sums; }
    Integers other_row() const { return sums; }
};
#endif

}  // namespace
