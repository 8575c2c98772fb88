// Vectors of AVX-512, with VNNI or without it.
//
// What x86.h asks of an instruction set. A group of outputs has two sides: two packed tiles of eight
// outputs, whose parts are one vector each, or two plain outputs, which share each vector.

#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace {

struct Vectors {
    using Bits = __m512i;
    using Floats = __m512;
    static constexpr int SIDES = 2, LANES = 16;
    static constexpr int HALVES_AT_ONCE = 2, GROUPS_AT_ONCE = 2;  // of packed outputs: there are many registers
    static constexpr int PLAIN_VECTORS = 2, PLAIN_TURNS = 1;  // of outputs of 256 weights, at once and in turn
    static constexpr int ROWS_IN_REGISTERS = 0, QUARTERS_AT_ONCE = 4;  // all 256 plain weights fit, and rows come in turn

    static Bits zero() { return _mm512_setzero_si512(); }
    static Bits bytes(int value) { return _mm512_set1_epi8(char(value)); }
    static Bits integers(int32_t value) { return _mm512_set1_epi32(value); }
    static Bits bits_and(Bits a, Bits b) { return _mm512_and_si512(a, b); }
    static Bits bits_or(Bits a, Bits b) { return _mm512_or_si512(a, b); }
    static Bits bits_xor(Bits a, Bits b) { return _mm512_xor_si512(a, b); }
    template <int BY> static Bits right(Bits a) { return _mm512_srli_epi16(a, BY); }
    static Bits right(Bits a, int by) { return _mm512_srli_epi16(a, by); }
    template <int BY> static Bits left(Bits a) { return _mm512_slli_epi16(a, BY); }
    static Bits add(Bits a, Bits b) { return _mm512_add_epi32(a, b); }
    static Bits less(Bits a, Bits b) { return _mm512_sub_epi32(a, b); }
    static Bits negative16(Bits a) { return _mm512_sub_epi16(zero(), a); }

    static Floats zeros() { return _mm512_setzero_ps(); }
    static Floats all(float value) { return _mm512_set1_ps(value); }
    static Floats floats(Bits a) { return _mm512_cvtepi32_ps(a); }
    static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
    static Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
    static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
    static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
    static Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
    static Floats of_floats(const float * at) { return _mm512_loadu_ps(at); }
    static void store(float * at, Floats a) { _mm512_storeu_ps(at, a); }
    static Floats of_halves(const void * at) { return _mm512_cvtph_ps(half(at)); }
    static float first(Floats a) { return _mm512_cvtss_f32(a); }
    static float highest(Floats a) { return _mm512_reduce_max_ps(a); }
    static float total(Floats a) { return _mm512_reduce_add_ps(a); }
    // The sum of each vector in its lane: pairs, fours, eights, all.
    static Floats totals(Floats (&a)[LANES]) {
        for (int i = 0; i < 8; ++i) {
            a[i] = add(_mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]), _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]));
        }
        for (int i = 0; i < 4; ++i) {
            const __m512d one = _mm512_castps_pd(a[2 * i]), other = _mm512_castps_pd(a[2 * i + 1]);
            a[i] = add(_mm512_castpd_ps(_mm512_unpacklo_pd(one, other)), _mm512_castpd_ps(_mm512_unpackhi_pd(one, other)));
        }
        for (int count = 2; count; count /= 2) {
            for (int i = 0; i < count; ++i) {
                a[i] = add(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], _MM_SHUFFLE(2, 0, 2, 0)),
                           _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], _MM_SHUFFLE(3, 1, 3, 1)));
            }
        }
        return a[0];
    }
    // Times two to what the lowest bits of `by` say; and only where x is above a limit, else zero.
    static Floats raised(Floats a, Floats by) {
        return _mm512_castsi512_ps(add(_mm512_castps_si512(a), _mm512_slli_epi32(_mm512_castps_si512(by), 23)));
    }
    static Floats where_above(Floats x, float limit, Floats a) {
        return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, all(limit), _CMP_GT_OQ), a);
    }

    // --- weights and activations -------------------------------------------------------------------

    // Of a float's bits as a number: less so many, at most so many, the lowest bytes of all.
    static Bits bits_less(Floats a, int32_t by) { return less(_mm512_castps_si512(a), integers(by)); }
    static Bits least(Bits a, int32_t most) { return _mm512_min_epi32(a, integers(most)); }
    static void store_low_bytes(int8_t * at, Bits a) {
        _mm_storeu_si128(reinterpret_cast<__m128i *>(at), _mm512_cvtepi32_epi8(a));
    }
    static int32_t total(Bits a) { return _mm512_reduce_add_epi32(a); }
    static float halved(float value) { return _cvtsh_ss(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)); }

    // 64 bytes of one tile: of all columns for the first half, and for the second.
    static Bits of_tile(const uint8_t * const * sides, int half, int at) {
        return _mm512_loadu_si512(sides[half] + at);
    }
    // 32 bytes of each output.
    static Bits of_outputs(const uint8_t * const * sides, int at) {
        return _mm512_inserti64x4(_mm512_castsi256_si512(half(sides[0] + at)), half(sides[1] + at), 1);
    }
    // 32 numbers of four bits of each output, by a table: of 16 bytes the lower bits, then the upper.
    static Bits of_table(const int8_t * table, const uint8_t * const * sides, int at) {
        const __m256i one = _mm256_broadcastsi128_si256(quarter(sides[0] + at));
        const __m256i other = _mm256_broadcastsi128_si256(quarter(sides[1] + at));
        const Bits both = _mm512_inserti64x4(_mm512_castsi256_si512(one), other, 1);
        const Bits bits = _mm512_srlv_epi64(both, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(quarter(table)), bits_and(bits, bytes(0xf)));
    }
    static Bits every_8(const int8_t * at) {
        int64_t value;
        std::memcpy(&value, at, sizeof value);
        return _mm512_set1_epi64(value);
    }
    static Bits every_4(const int8_t * at) {
        int32_t value;
        std::memcpy(&value, at, sizeof value);
        return integers(value);
    }
    static Bits every_32(const void * at) { return _mm512_broadcast_i64x4(half(at)); }

    // --- products: unsigned weights by signed activations --------------------------------------------

    // Pairs of products, as 16 bits; and sums of these by weights of 16 bits.
    static Bits products(Bits u, Bits s) { return _mm512_maddubs_epi16(u, s); }
    // Signed weights: without their signs, and activations with these in their place.
    static Bits unsigned_of(Bits a) { return _mm512_abs_epi8(a); }
    static Bits turned(Bits b, Bits a) { return _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(a), zero(), b); }

#if defined(__AVX512VNNI__)
    static constexpr const char * NAME = "AVX512_VNNI";
    static Bits dot(Bits sums, Bits u, Bits s) { return _mm512_dpbusd_epi32(sums, u, s); }
    static Bits whole(Bits sums) { return sums; }
    static Bits whole(Bits one, Bits two) { return add(one, two); }
    static Bits weigh(Bits sums, Bits a, Bits b) { return _mm512_dpwssd_epi32(sums, a, b); }

    // Of eight vectors, each with two groups of sixteen weights of two outputs, every four change fours of bytes
    // in their quarters: what was a quarter of one is a lane of all four. Activations are arranged alike, and
    // what is one number for each group.
    static void chained(Bits (&a)[8]) {
        fours(a), fours(a + 4);
    }
    static void chained(const int8_t * eight_groups, int8_t * to) {
        const Bits one = _mm512_loadu_si512(eight_groups), two = _mm512_loadu_si512(eight_groups + 64);
        const Bits order = _mm512_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28, 1, 9, 17, 25, 5, 13, 21, 29);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi32(one, order, two));
        _mm512_storeu_si512(to + 64, _mm512_permutex2var_epi32(one, add(order, integers(2)), two));
    }
    static void chained(const int16_t * sixteen, int times, int32_t * to) {
        const Bits order = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        const Bits all = _mm512_permutexvar_epi32(order, _mm512_cvtepi16_epi32(half(sixteen)));
        _mm512_storeu_si512(to, _mm512_mullo_epi32(all, integers(times)));
    }
    // Of sixteen scales of each output those of four vectors.
    static Floats chained(Bits sixteen, int half) {
        const Bits order = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 16, 18, 20, 22, 17, 19, 21, 23);
        const Bits upper = _mm512_slli_epi32(add(order, integers(8 * half)), 16);
        return floats(_mm512_srai_epi32(_mm512_permutexvar_epi16(upper, sixteen), 16));
    }

    // Of sixteen outputs four bytes in each vector, a lane for each output: of 32 bytes of each eight vectors.
    static void in_lanes(const uint8_t * const * outputs, int at, Bits (&a)[8]) {
        for (int i = 0; i < 8; ++i) {
            const uint8_t * const * of = outputs + i + (i & 4);
            a[i] = _mm512_inserti64x4(_mm512_castsi256_si512(half(of[0] + at)), half(of[4] + at), 1);
        }
        fours(a), fours(a + 4);
        for (int i = 0; i < 4; ++i) {
            const Bits one = a[i], other = a[4 + i];
            a[i] = _mm512_shuffle_i32x4(one, other, _MM_SHUFFLE(2, 0, 2, 0));
            a[4 + i] = _mm512_shuffle_i32x4(one, other, _MM_SHUFFLE(3, 1, 3, 1));
        }
    }
    // Of sixteen bytes of each output four vectors, of two bytes of each a float.
    static void in_lanes(const uint8_t * const * outputs, int at, Bits (&a)[4]) {
        for (int i = 0; i < 4; ++i) {
            const uint8_t * const * of = outputs + i;
            a[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(quarter(of[4] + at), quarter(of[0] + at))),
                                      _mm256_set_m128i(quarter(of[12] + at), quarter(of[8] + at)), 1);
        }
        fours(a);
    }
    static Floats steps_in_lanes(const uint8_t * const * outputs, int at) {
        const auto bits = [&](int i) {
            int16_t found;
            std::memcpy(&found, outputs[i] + at, sizeof found);
            return found;
        };
        return _mm512_cvtph_ps(_mm256_setr_epi16(bits(0), bits(1), bits(2), bits(3), bits(4), bits(5), bits(6),
                                                 bits(7), bits(8), bits(9), bits(10), bits(11), bits(12), bits(13),
                                                 bits(14), bits(15)));
    }
    // Of four bytes of each output the first two as a float, or the last two.
    static Floats first_halves(Bits a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }
    static Floats last_halves(Bits a) { return first_halves(_mm512_srli_epi32(a, 16)); }
    static Bits right32(Bits a, int by) { return _mm512_srli_epi32(a, by); }
    static Bits left32(Bits a, int by) { return _mm512_slli_epi32(a, by); }
    static Bits by_table(const int8_t * table, Bits numbers) {
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(quarter(table)), numbers);
    }
    static void store_lanes(float * out, int count, Floats sums) {
        _mm512_mask_storeu_ps(out, __mmask16((1u << std::min(count, 16)) - 1), sums);
    }
    static Bits times(Bits a, Bits b) { return _mm512_mullo_epi32(a, b); }
#else
    static constexpr const char * NAME = "AVX512";
    // In 16 bits: room for four times two products by weights up to 31, for eight times by weights up to 15.
    static Bits dot(Bits sums, Bits u, Bits s) { return _mm512_add_epi16(sums, products(u, s)); }
    static Bits whole(Bits sums) { return _mm512_madd_epi16(sums, _mm512_set1_epi16(1)); }
    static Bits whole(Bits one, Bits two) { return whole(_mm512_add_epi16(one, two)); }
    static Bits weigh(Bits sums, Bits a, Bits b) { return add(sums, _mm512_madd_epi16(a, b)); }
#endif

    // Of each four weights of two vectors the first pair of one and the second of the other; and the rest.
    // Sums of four products by weights up to 63 fit 16 bits: as both are pairs, they need one addition,
    // and those of two vectors are weighed by both scales at once.
    static Bits straight(Bits one, Bits two) { return _mm512_mask_blend_epi16(0xaaaaaaaa, one, two); }
    static Bits crossed(Bits one, Bits two) { return bits_or(_mm512_srli_epi32(one, 16), _mm512_slli_epi32(two, 16)); }
    static Bits weigh(Bits sums, Bits one, Bits two, Bits by_one, Bits by_two, Bits scales) {
        return weigh(sums, _mm512_add_epi16(products(one, by_one), products(two, by_two)), scales);
    }
    // Of sixteen scales those of two vectors, which have two of them each, or one.
    template <int EACH> static Bits chosen(Bits sixteen, int first) {
        const int one = first | (first + EACH) << 16, other = (first + EACH - 1) | (first + 2 * EACH - 1) << 16;
        return ordered(sixteen, one, other);
    }

    // --- packed tiles --------------------------------------------------------------------------------

    // Of both tiles, which have two lanes for each column, one for each, as `in_order` puts in that of the outputs.
    static Bits even_lanes(Bits a, Bits b) { return _mm512_permutex2var_epi32(a, even(), b); }
    static Bits odd_lanes(Bits a, Bits b) { return _mm512_permutex2var_epi32(a, add(even(), integers(1)), b); }
    static Bits in_order(Bits a) { return a; }

    // Of each tile's eight groups of weights eight scales and eight minima of six bits.
    struct Groups { uint64_t scales[SIDES][8], minima[SIDES][8]; };
    static Groups groups_of(const uint8_t * const * sides, int at) {
        Groups groups;
        for (int side = 0; side < SIDES; ++side) {  // twelve bytes for each, as unpack() has them
            const uint8_t * from = sides[side] + at;
            const Bits one = every_third(from, 0), two = every_third(from, 1), three = every_third(from, 2);
            _mm512_storeu_si512(groups.scales[side], six_bits(one, three));
            _mm512_storeu_si512(groups.minima[side], six_bits(two, right<4>(three)));
        }
        return groups;
    }

    // Sums of two groups of weights (`dot`), by the groups' scales.
#if defined(__AVX512VNNI__)
    static constexpr int FEW_ROWS = 4;  // of packed Q4_K: so many have code of their own
    struct Scales { Bits all; };
    template <int HALF> static Scales scales(const Groups & groups, int first) {
        const __m128i bytes = quarter(&groups.scales[HALF][first]);
        const Bits order = columns(_mm_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 8, -1, 8, -1, 9, -1, 9, -1));
        return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), order)};
    }
    static Bits weigh(Bits sums, const Bits (&groups)[2], const Scales & scales, int) {
        return weigh(sums, _mm512_packs_epi32(groups[0], groups[1]), scales.all);
    }
    static Bits fold_weighed(Bits a, Bits b) {
        const Bits low = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29);
        return add(_mm512_permutex2var_epi32(a, low, b), _mm512_permutex2var_epi32(a, add(low, integers(2)), b));
    }
#else
    static constexpr int FEW_ROWS = 1;
    struct Scales { Bits low, high; };
    template <int HALF> static Scales scales(const Groups & groups, int first) {
        const Bits order = columns(_mm_setr_epi8(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1));
        return {_mm512_shuffle_epi8(_mm512_set1_epi64(int64_t(groups.scales[HALF][first])), order),
                _mm512_shuffle_epi8(_mm512_set1_epi64(int64_t(groups.scales[HALF][first + 1])), order)};
    }
    static Bits weigh(Bits sums, const Bits (&groups)[2], const Scales & scales, int) {
        return weigh(weigh(sums, groups[0], scales.low), groups[1], scales.high);
    }
    static Bits fold_weighed(Bits a, Bits b) { return add(even_lanes(a, b), odd_lanes(a, b)); }
#endif

    // Minima of two groups for each column, in the order of the outputs: pairs of 16 bits.
    static Bits minima_of(const Groups & groups, int first) {
        return _mm512_cvtepu8_epi16(_mm256_set_m128i(zipped(&groups.minima[1][first]), zipped(&groups.minima[0][first])));
    }
    static Floats steps_of_tiles(const uint8_t * const * sides, int at) {
        return _mm512_cvtph_ps(_mm256_set_m128i(quarter(sides[1] + at), quarter(sides[0] + at)));
    }
    static void store_tiles(float * out, int count, Floats sums) {
        _mm512_mask_storeu_ps(out, count == SIDES ? 0xffff : 0xff, sums);
    }

    // --- plain outputs -------------------------------------------------------------------------------

    // Sixteen signed bytes of each output, as 16 bits; and of each output two of them, eight times each.
    static Bits sixteen(const uint8_t * const * sides, int at) {
        return _mm512_cvtepi8_epi16(_mm256_set_m128i(quarter(sides[1] + at), quarter(sides[0] + at)));
    }
    static Bits sixteen(const uint64_t * low, const uint64_t * high) {
        return _mm512_cvtepi8_epi16(_mm256_set_epi64x(high[1], low[1], high[0], low[0]));
    }
    static Bits chosen(Bits sixteen, int one, int other) { return ordered(sixteen, one * 0x10001, other * 0x10001); }
    static Floats steps(const uint8_t * const * sides, int at) {
        return _mm512_insertf32x8(_mm512_set1_ps(step(sides[0] + at)), _mm256_set1_ps(step(sides[1] + at)), 1);
    }
    // The sum of each four lanes, in all of them.
    static Bits fours(Bits a) {
        a = add(a, _mm512_shuffle_epi32(a, _MM_PERM_BADC));
        return add(a, _mm512_shuffle_epi32(a, _MM_PERM_CDAB));
    }
    // The eight lanes of each output, in llama.cpp's order, and what is added to that.
    static void store_outputs(float * out, int count, Floats sums, Floats more) {
        sums = _mm512_add_ps(sums, _mm512_shuffle_f32x4(sums, sums, _MM_SHUFFLE(2, 3, 0, 1)));
        sums = _mm512_add_ps(sums, _mm512_permute_ps(sums, _MM_SHUFFLE(1, 0, 3, 2)));
        sums = _mm512_add_ps(_mm512_add_ps(sums, _mm512_movehdup_ps(sums)), more);
        out[0] = _mm512_cvtss_f32(sums);
        if (count >= SIDES) out[1] = _mm256_cvtss_f32(_mm512_extractf32x8_ps(sums, 1));
    }

  private:
    // Of sixteen numbers of each output the two that `one` says, four times, and so of `other`.
    static Bits ordered(Bits sixteen, int one, int other) {
        const int one_more = one + 0x100010, other_more = other + 0x100010;
        const Bits order = _mm512_setr_epi32(one, one, one, one, other, other, other, other, one_more, one_more, one_more,
                                             one_more, other_more, other_more, other_more, other_more);
        return _mm512_permutexvar_epi16(order, sixteen);
    }
    // In each quarter of four vectors: what was one's four fours of bytes is one four of each.
    static void fours(Bits * of) {
        const Bits low = _mm512_unpacklo_epi32(of[0], of[1]), high = _mm512_unpackhi_epi32(of[0], of[1]);
        const Bits low_too = _mm512_unpacklo_epi32(of[2], of[3]), high_too = _mm512_unpackhi_epi32(of[2], of[3]);
        of[0] = _mm512_unpacklo_epi64(low, low_too), of[1] = _mm512_unpackhi_epi64(low, low_too);
        of[2] = _mm512_unpacklo_epi64(high, high_too), of[3] = _mm512_unpackhi_epi64(high, high_too);
    }
    static __m128i quarter(const void * at) { return _mm_loadu_si128(static_cast<const __m128i *>(at)); }
    static __m256i half(const void * at) { return _mm256_loadu_si256(static_cast<const __m256i *>(at)); }
    static float step(const uint8_t * at) {
        uint16_t bits;
        std::memcpy(&bits, at, sizeof bits);
        return _cvtsh_ss(bits);
    }
    // Every third of 24 words, twice; and what is made of two of these: lower bits, and upper ones after four others.
    static Bits every_third(const uint8_t * at, int first) {
        const Bits order = _mm512_setr_epi32(0, 0, 3, 3, 6, 6, 9, 9, 12, 12, 15, 15, 18, 18, 21, 21);
        const Bits low = _mm512_loadu_si512(at), high = _mm512_castsi256_si512(half(at + 64));
        return _mm512_permutex2var_epi32(low, add(order, integers(first)), high);
    }
    static Bits six_bits(Bits low, Bits high) {
        const Bits upper = bits_or(bits_and(high, bytes(0x0f)), bits_and(right<2>(low), bytes(0x30)));
        return _mm512_mask_blend_epi32(0xaaaa, bits_and(low, bytes(0x3f)), upper);
    }
    static Bits even() { return _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30); }
    // A choice of two columns' bytes, made for the columns of every quarter; -1 stays zero.
    static Bits columns(__m128i two) {
        const Bits quarters = _mm512_setr_epi64(0, 0, 0x0202020202020202, 0x0202020202020202, 0x0404040404040404,
                                                0x0404040404040404, 0x0606060606060606, 0x0606060606060606);
        return _mm512_or_si512(_mm512_add_epi8(_mm512_broadcast_i32x4(two), quarters),
                               _mm512_broadcast_i32x4(_mm_and_si128(two, _mm_set1_epi8(-128))));
    }
    static __m128i zipped(const uint64_t * two) {
        return _mm_shuffle_epi8(quarter(two), _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    }
};

}  // namespace
