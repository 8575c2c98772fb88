// Vectors of AVX2, with AVX-VNNI or without it.
//
// What x86.h asks of an instruction set. A group of outputs has one side: a packed tile of eight
// outputs, of which each part fills two vectors, or one plain output.

#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

struct Vectors {
    using Bits = __m256i;
    using Floats = __m256;
    static constexpr int SIDES = 1, LANES = 8;
    static constexpr int PLAIN_VECTORS = 1, PLAIN_TURNS = 2;  // of outputs of 256 weights, at once and in turn
    static constexpr int ROWS_IN_REGISTERS = 6;  // whose sums fit beside a quarter of 256 plain weights
    static constexpr int QUARTERS_AT_ONCE = 2;   // of these, where rows come in turn

    static Bits zero() { return _mm256_setzero_si256(); }
    static Bits bytes(int value) { return _mm256_set1_epi8(char(value)); }
    static Bits integers(int32_t value) { return _mm256_set1_epi32(value); }
    static Bits bits_and(Bits a, Bits b) { return _mm256_and_si256(a, b); }
    static Bits bits_or(Bits a, Bits b) { return _mm256_or_si256(a, b); }
    static Bits bits_xor(Bits a, Bits b) { return _mm256_xor_si256(a, b); }
    template <int BY> static Bits right(Bits a) { return _mm256_srli_epi16(a, BY); }
    static Bits right(Bits a, int by) { return _mm256_srli_epi16(a, by); }
    template <int BY> static Bits left(Bits a) { return _mm256_slli_epi16(a, BY); }
    static Bits add(Bits a, Bits b) { return _mm256_add_epi32(a, b); }
    static Bits less(Bits a, Bits b) { return _mm256_sub_epi32(a, b); }
    static Bits negative16(Bits a) { return _mm256_sub_epi16(zero(), a); }

    static Floats zeros() { return _mm256_setzero_ps(); }
    static Floats all(float value) { return _mm256_set1_ps(value); }
    static Floats floats(Bits a) { return _mm256_cvtepi32_ps(a); }
    static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
    static Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
    static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
    static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
    static Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
    static Floats of_floats(const float * at) { return _mm256_loadu_ps(at); }
    static void store(float * at, Floats a) { _mm256_storeu_ps(at, a); }
    static Floats of_halves(const void * at) { return _mm256_cvtph_ps(half_vector(at)); }
    static float first(Floats a) { return _mm256_cvtss_f32(a); }
    static float highest(Floats a) {
        __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        four = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
    }
    static float total(Floats a) {
        __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        four = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
    }
    // The sum of each vector in its lane: pairs, fours, all.
    static Floats totals(Floats (&a)[LANES]) {
        for (int count = 4; count > 1; count /= 2) {
            for (int i = 0; i < count; ++i) a[i] = _mm256_hadd_ps(a[2 * i], a[2 * i + 1]);
        }
        return add(_mm256_permute2f128_ps(a[0], a[1], 0x20), _mm256_permute2f128_ps(a[0], a[1], 0x31));
    }
    // Times two to what the lowest bits of `by` say; and only where x is above a limit, else zero.
    static Floats raised(Floats a, Floats by) {
        return _mm256_castsi256_ps(add(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(by), 23)));
    }
    static Floats where_above(Floats x, float limit, Floats a) {
        return _mm256_and_ps(_mm256_cmp_ps(x, all(limit), _CMP_GT_OQ), a);
    }

    // --- weights and activations -------------------------------------------------------------------

    // Of a float's bits as a number: less so many, at most so many, the lowest bytes of all.
    static Bits bits_less(Floats a, int32_t by) { return less(_mm256_castps_si256(a), integers(by)); }
    static Bits least(Bits a, int32_t most) { return _mm256_min_epi32(a, integers(most)); }
    static void store_low_bytes(int8_t * at, Bits a) {
        const __m128i order = _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
        const Bits fours = _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(order));
        const __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i *>(at), both);
    }
    static int32_t total(Bits a) {
        __m128i four = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
        four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
        return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_srli_epi64(four, 32)));
    }
    static float halved(float value) { return _cvtsh_ss(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)); }

    // 32 of 64 bytes of a tile: of its first four columns, or of its last.
    static Bits of_tile(const uint8_t * const * sides, int half, int at) {
        return whole_vector(sides[0] + at + 32 * half);
    }
    static Bits of_outputs(const uint8_t * const * sides, int at) { return whole_vector(sides[0] + at); }
    // 32 numbers of four bits, by a table: of 16 bytes the lower bits, then the upper.
    static Bits of_table(const int8_t * table, const uint8_t * const * sides, int at) {
        const Bits both = _mm256_broadcastsi128_si256(half_vector(sides[0] + at));
        const Bits bits = _mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4));
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(half_vector(table)), bits_and(bits, bytes(0xf)));
    }
    static Bits every_8(const int8_t * at) {
        int64_t value;
        std::memcpy(&value, at, sizeof value);
        return _mm256_set1_epi64x(value);
    }
    static Bits every_4(const int8_t * at) {
        int32_t value;
        std::memcpy(&value, at, sizeof value);
        return integers(value);
    }
    static Bits every_32(const void * at) { return whole_vector(at); }

    // --- products: unsigned weights by signed activations --------------------------------------------

    static Bits products(Bits u, Bits s) { return _mm256_maddubs_epi16(u, s); }
    static Bits unsigned_of(Bits a) { return _mm256_abs_epi8(a); }
    static Bits turned(Bits b, Bits a) { return _mm256_sign_epi8(b, a); }

#if defined(__AVXVNNI__)
    static constexpr const char * NAME = "AVX_VNNI";
    static Bits dot(Bits sums, Bits u, Bits s) { return _mm256_dpbusd_avx_epi32(sums, u, s); }
    static Bits whole(Bits sums) { return sums; }
    static Bits whole(Bits one, Bits two) { return add(one, two); }
    static Bits weigh(Bits sums, Bits a, Bits b) { return _mm256_dpwssd_avx_epi32(sums, a, b); }
#else
    static constexpr const char * NAME = "AVX2";
    // In 16 bits: room for four times two products by weights up to 31, for eight times by weights up to 15.
    static Bits dot(Bits sums, Bits u, Bits s) { return _mm256_add_epi16(sums, products(u, s)); }
    static Bits whole(Bits sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
    static Bits whole(Bits one, Bits two) { return whole(_mm256_add_epi16(one, two)); }
    static Bits weigh(Bits sums, Bits a, Bits b) { return add(sums, _mm256_madd_epi16(a, b)); }
#endif

    // Of each four weights of two vectors the first pair of one and the second of the other; and the rest.
    // Sums of four products by weights up to 63 fit 16 bits: as both are pairs, they need one addition,
    // and those of two vectors are weighed by both scales at once.
    static Bits straight(Bits one, Bits two) { return _mm256_blend_epi16(one, two, 0xaa); }
    static Bits crossed(Bits one, Bits two) { return bits_or(_mm256_srli_epi32(one, 16), _mm256_slli_epi32(two, 16)); }
    static Bits weigh(Bits sums, Bits one, Bits two, Bits by_one, Bits by_two, Bits scales) {
        return weigh(sums, _mm256_add_epi16(products(one, by_one), products(two, by_two)), scales);
    }
    // Of sixteen scales those of two vectors, which have two of them each, or one.
    template <int EACH> static Bits chosen(Bits sixteen, int first) {
        const int one = first | (first + EACH) << 16, other = (first + EACH - 1) | (first + 2 * EACH - 1) << 16;
        return ordered(sixteen, one, other);
    }

    // --- packed tiles --------------------------------------------------------------------------------

    // Of both halves, which have two lanes for each column, one for each, as `in_order` puts in that of the outputs.
    static Bits even_lanes(Bits a, Bits b) { return lanes<0x88>(a, b); }
    static Bits odd_lanes(Bits a, Bits b) { return lanes<0xdd>(a, b); }
    static Bits in_order(Bits a) { return _mm256_permute4x64_epi64(a, _MM_SHUFFLE(3, 1, 2, 0)); }

    // Of a tile's eight groups of weights eight scales and eight minima of six bits, two groups in each vector.
    struct Groups { Bits of[4]; };
    static Groups groups_of(const uint8_t * const * sides, int at) {
        Groups groups;
        for (int i = 0; i < 4; ++i) {  // twelve bytes for each, as unpack() has them
            const uint8_t * from = sides[0] + at + 24 * i;
            const Bits bits = _mm256_set_m128i(half_vector(from + 12), half_vector(from));
            const Bits last = _mm256_srlv_epi32(_mm256_shuffle_epi32(bits, 0xaa), _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4));
            const Bits high = bits_or(bits_and(last, bytes(0x0f)), bits_and(right<2>(bits), bytes(0x30)));
            groups.of[i] = _mm256_unpacklo_epi32(bits_and(bits, bytes(0x3f)), high);
        }
        return groups;
    }

    // Sums of two groups of weights (`dot`), by the groups' scales. How much of packed outputs is done at once, and
    // how many rows of Q4_K have code of their own.
#if defined(__AVXVNNI__)
    static constexpr int HALVES_AT_ONCE = 1, GROUPS_AT_ONCE = 2, FEW_ROWS = 1;
    struct Scales { Bits all; };
    template <int HALF> static Scales scales(const Groups & groups, int first) {
        const Bits order = _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 8, -1, 8, -1, 9, -1, 9, -1,
                                            2, -1, 2, -1, 3, -1, 3, -1, 10, -1, 10, -1, 11, -1, 11, -1);
        const Bits both = _mm256_permute4x64_epi64(groups.of[first / 2], _MM_SHUFFLE(2, 0, 2, 0));
        return {_mm256_shuffle_epi8(HALF ? _mm256_srli_epi64(both, 32) : both, order)};
    }
    static Bits weigh(Bits sums, const Bits (&groups)[2], const Scales & scales, int) {
        return weigh(sums, _mm256_packs_epi32(groups[0], groups[1]), scales.all);
    }
    static Bits fold_weighed(Bits a, Bits b) {
        return in_order(add(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)));
    }
#else
    static constexpr int HALVES_AT_ONCE = 2, GROUPS_AT_ONCE = 1, FEW_ROWS = 4;  // loads are fewer than products
    struct Scales { Bits of[2]; };
    template <int HALF> static Scales scales(const Groups & groups, int first) {
        const Bits order = _mm256_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1,
                                            2, -1, 2, -1, 2, -1, 2, -1, 3, -1, 3, -1, 3, -1, 3, -1);
        const Bits two = HALF ? _mm256_srli_epi64(groups.of[first / 2], 32) : groups.of[first / 2];
        return {_mm256_shuffle_epi8(_mm256_permute2x128_si256(two, two, 0x00), order),
                _mm256_shuffle_epi8(_mm256_permute2x128_si256(two, two, 0x11), order)};
    }
    static Bits weigh(Bits sums, const Bits (&one)[1], const Scales & scales, int group) {
        return weigh(sums, one[0], scales.of[group]);
    }
    static Bits fold_weighed(Bits a, Bits b) { return in_order(_mm256_hadd_epi32(a, b)); }
#endif

    // Minima of two groups for each column, in the order of the outputs: pairs of 16 bits.
    static Bits minima_of(const Groups & groups, int first) {
        const __m128i zip = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
        const Bits two = _mm256_permute4x64_epi64(groups.of[first / 2], _MM_SHUFFLE(3, 1, 3, 1));
        return _mm256_cvtepu8_epi16(_mm_shuffle_epi8(_mm256_castsi256_si128(two), zip));
    }
    static Floats steps_of_tiles(const uint8_t * const * sides, int at) {
        return _mm256_cvtph_ps(half_vector(sides[0] + at));
    }
    static void store_tiles(float * out, int, Floats sums) { _mm256_storeu_ps(out, sums); }

    // --- plain outputs -------------------------------------------------------------------------------

    // Sixteen signed bytes, as 16 bits; and two of them, eight times each.
    static Bits sixteen(const uint8_t * const * sides, int at) {
        return _mm256_cvtepi8_epi16(half_vector(sides[0] + at));
    }
    static Bits sixteen(const uint64_t * low, const uint64_t * high) {
        return _mm256_cvtepi8_epi16(_mm_set_epi64x(int64_t(high[0]), int64_t(low[0])));
    }
    static Bits chosen(Bits sixteen, int one, int other) { return ordered(sixteen, one * 0x10001, other * 0x10001); }
    static Floats steps(const uint8_t * const * sides, int at) {
        uint16_t bits;
        std::memcpy(&bits, sides[0] + at, sizeof bits);
        return _mm256_set1_ps(_cvtsh_ss(bits));
    }
    // The sum of each four lanes, in all of them.
    static Bits fours(Bits a) {
        a = add(a, _mm256_shuffle_epi32(a, _MM_SHUFFLE(1, 0, 3, 2)));
        return add(a, _mm256_shuffle_epi32(a, _MM_SHUFFLE(2, 3, 0, 1)));
    }
    // The eight lanes, in llama.cpp's order, and what is added to that.
    static void store_outputs(float * out, int, Floats sums, Floats more) {
        __m128 four = _mm_add_ps(_mm256_extractf128_ps(sums, 1), _mm256_castps256_ps128(sums));
        four = _mm_add_ps(four, _mm_movehl_ps(four, four));
        four = _mm_add_ss(four, _mm_movehdup_ps(four));
        *out = _mm_cvtss_f32(_mm_add_ss(four, _mm256_castps256_ps128(more)));
    }

  private:
    // Of sixteen numbers the two that `one` says, four times, and so of `other`; all are of one half.
    static Bits ordered(Bits sixteen, int one, int other) {
        const Bits half = one % 16 < 8 ? _mm256_permute2x128_si256(sixteen, sixteen, 0x00)
                                       : _mm256_permute2x128_si256(sixteen, sixteen, 0x11);
        const __m128i these = _mm_set1_epi32(bytes_of(one)), those = _mm_set1_epi32(bytes_of(other));
        return _mm256_shuffle_epi8(half, _mm256_set_m128i(those, these));
    }
    static constexpr int bytes_of(int two) { return (two & 0x70007) * 0x202 + 0x1000100; }
    static __m128i half_vector(const void * at) { return _mm_loadu_si128(static_cast<const __m128i *>(at)); }
    static __m256i whole_vector(const void * at) { return _mm256_loadu_si256(static_cast<const __m256i *>(at)); }
    template <int WHICH> static Bits lanes(Bits a, Bits b) {
        return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), WHICH));
    }
};

}  // namespace
