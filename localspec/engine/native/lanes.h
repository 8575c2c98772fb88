// Sixteen outputs at once where a CPU adds four products of bytes to a lane at once (AVX-512 VNNI).
//
// Each output has a lane, and 32 of its weights are eight vectors deep. So all of them
// are summed without a look at other lanes, and weighed by one product of whole numbers. llama.cpp has an output
// in eight lanes, with floats for each, which are added in another order; so all rows are computed here, one
// alone and a prompt. Weights change places once for all rows, which pays for one row too: less is done with
// what comes of them. For Q6_K it does not, of few rows; that is in `chained.h`.

#pragma once

#include "plain.h"

namespace {

// Of 32 weights: their products with activations, added to `start`. Two chains wait less than one.
[[gnu::always_inline]] inline Bits dot32(Bits start, const Bits (&weights)[8], const int8_t * q) {
    Bits one = start, two = Vectors::zero();
    EVERY(4) {
        one = Vectors::dot(one, weights[i], Vectors::every_4(q + 4 * i));
        two = Vectors::dot(two, weights[4 + i], Vectors::every_4(q + 16 + 4 * i));
    }
    return Vectors::add(one, two);
}

// Of each row the products by 256 weights, whose sum is `exact`.
template <int ROWS, typename Block>
[[gnu::always_inline]] inline void add_blocks(int now, const Block * blocks, const Bits (&exact)[ROWS], Floats step,
                                              SumsOf<ROWS, 1> & sums) {
    EVERY_ROW {
        Floats & up = sums.up[row][0];
        up = Vectors::fma(Vectors::floats(exact[row]), Vectors::mul(step, Vectors::all(blocks[row].scale)), up);
    }
}

// And less what the minima of their groups make of the activations.
template <int ROWS, typename Block>
[[gnu::always_inline]] inline void add_blocks(int now, const Block * blocks, const Bits (&exact)[ROWS],
                                              const Bits (&minima)[4], Floats step, Floats low_step,
                                              SumsOf<ROWS, 1> & sums) {
    EVERY_ROW {
        const auto * pairs = reinterpret_cast<const uint8_t *>(blocks[row].pairs);
        const Floats scale = Vectors::all(blocks[row].scale);
        Bits low = Vectors::zero();
        EVERY(4) low = Vectors::weigh(low, minima[i], Vectors::integers(load<int32_t>(pairs + 4 * i)));
        Floats &up = sums.up[row][0], &down = sums.down[row][0];
        up = Vectors::fma(Vectors::floats(exact[row]), Vectors::mul(step, scale), up);
        down = Vectors::fma(Vectors::floats(low), Vectors::mul(low_step, scale), down);
    }
}

// Activations for weights that are made unsigned, 128 too large: the negative of what that adds to each sum.
struct Shifted32 : Block32 {};
struct Shifted256 : Block256 { int32_t excess[8]; };

inline void quantize(const float * x, Shifted32 & block) {
    quantize(x, static_cast<Block32 &>(block));
    block.excess *= -16;
}
inline void quantize(const float * x, Shifted256 & block) {
    quantize(x, static_cast<Block256 &>(block));
    EVERY(8) block.excess[i] = -128 * block.pairs[i];
}

inline Bits excess(const Block256 &, int) { return Vectors::zero(); }
inline Bits excess(const Shifted256 & block, int group) { return Vectors::integers(block.excess[group]); }

// Of each row two groups of 32 weights, by their scales.
template <int ROWS, typename Block>
[[gnu::always_inline]] inline void add_groups(int now, const Block * blocks, int first, const Bits (&weights)[2][8],
                                              Bits one, Bits two, Bits (&exact)[ROWS]) {
    EVERY_ROW {
        const Block & block = blocks[row];
        const Bits of_one = dot32(excess(block, first), weights[0], block.q + 32 * first);
        const Bits of_two = dot32(excess(block, first + 1), weights[1], block.q + 32 * first + 32);
        const Bits both = Vectors::add(Vectors::times(of_one, one), Vectors::times(of_two, two));
        exact[row] = Vectors::add(exact[row], both);
    }
}

struct Lanes : Plain {
    static constexpr int MOST_ROWS = 1 << 30;
    static constexpr int SIDES = Vectors::LANES;
    using Sides = const uint8_t *[SIDES];

    template <int ROWS> static void store(int now, const Sums<ROWS> & sums, int count, float * out, size_t stride) {
        EVERY_ROW_UNROLLED store_lanes(out + row * stride, count, sub(sums.up[row][0], sums.down[row][0]));
    }
};

struct LanesQ8_0 : Lanes {
    static constexpr ggml_type TYPE = GGML_TYPE_Q8_0;
    using Block = Shifted32;
    static constexpr int ROWS_AT_ONCE = 16, ROWS_UNROLLED = 16, WEIGHTS = 32;
    static constexpr size_t BYTES = PlainQ8_0::BYTES;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Bits weights[8];
        in_lanes(sides, 2, weights);
        EVERY(8) weights[i] = bits_xor(weights[i], bytes(0x80));
        const Floats step = steps_in_lanes(sides, 0);
        _Pragma("GCC unroll 16") for (int row = 0; row < now; ++row) {
            const Bits exact = dot32(integers(blocks[row].excess), weights, blocks[row].q);
            sums.up[row][0] = fma(floats(exact), mul(step, all(blocks[row].scale)), sums.up[row][0]);
        }
    }
};

struct LanesQ5_K : Lanes {
    static constexpr ggml_type TYPE = GGML_TYPE_Q5_K;
    using Block = Block256;
    static constexpr int ROWS_AT_ONCE = 32, ROWS_UNROLLED = 1, WEIGHTS = 256;
    static constexpr size_t BYTES = PlainQ5_K::BYTES;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Bits head[4], scales[2], lows[2], tops[8], exact[ROWS], minima[4];
        in_lanes(sides, 0, head);
        unpack(head, scales, lows);
        in_lanes(sides, 16, tops);
        EVERY_ROW exact[row] = zero();
        for (int pair = 0; pair < 4; ++pair) {
            Bits weights[2][8];
            unpack(sides, pair, tops, weights);
            const Bits both = right32(scales[pair / 2], 16 * (pair % 2)), byte = integers(0xff);
            add_groups(now, blocks, 2 * pair, weights, bits_and(both, byte), bits_and(right32(both, 8), byte), exact);
        }
        EVERY(4) {
            const Bits both = i % 2 ? right32(lows[i / 2], 16) : lows[i / 2];
            minima[i] = bits_or(bits_and(both, integers(0xff)), left32(bits_and(both, integers(0xff00)), 8));
        }
        add_blocks(now, blocks, exact, minima, first_halves(head[0]), last_halves(head[0]), sums);
    }

  private:
    // As ::unpack() does for one output: of four groups in each vector.
    static void unpack(const Bits (&head)[4], Bits (&scales)[2], Bits (&minima)[2]) {
        const Bits six = bytes(0x3f), four = bytes(0x0f), two = bytes(0x30);
        const Bits &one = head[1], &other = head[2], &rest = head[3];
        scales[0] = bits_and(one, six), minima[0] = bits_and(other, six);
        scales[1] = bits_or(bits_and(rest, four), bits_and(right<2>(one), two));
        minima[1] = bits_or(bits_and(right<4>(rest), four), bits_and(right<2>(other), two));
    }
    [[gnu::always_inline]] static void unpack(const Sides & sides, int pair, const Bits (&tops)[8],
                                              Bits (&weights)[2][8]) {
        Bits both[8];
        in_lanes(sides, 48 + 32 * pair, both);
        EVERY(8) {
            const Bits upper = right(tops[i], 2 * pair), low = bytes(0xf), top = bytes(0x10);
            weights[0][i] = bits_or(bits_and(both[i], low), bits_and(left<4>(upper), top));
            weights[1][i] = bits_or(bits_and(right<4>(both[i]), low), bits_and(left<3>(upper), top));
        }
    }
};

struct LanesIQ4_XS : Lanes {
    static constexpr ggml_type TYPE = GGML_TYPE_IQ4_XS;
    using Block = Shifted256;
    static constexpr int ROWS_AT_ONCE = 32, ROWS_UNROLLED = 1, WEIGHTS = 256;
    static constexpr size_t BYTES = PlainIQ4_XS::BYTES;

    template <int ROWS>
    static void multiply(int now, const Block * blocks, const Sides & sides, Sums<ROWS> & sums) {
        Bits head[4], exact[ROWS];
        in_lanes(sides, 0, head);
        EVERY_ROW exact[row] = zero();
        for (int pair = 0; pair < 4; ++pair) {
            Bits both[8], weights[2][8];
            in_lanes(sides, 8 + 32 * pair, both);
            EACH(of, 2) EVERY(4) {
                weights[of][i] = of_table(both[4 * of + i]);
                weights[of][4 + i] = of_table(right<4>(both[4 * of + i]));
            }
            add_groups(now, blocks, 2 * pair, weights, scale(head, 2 * pair), scale(head, 2 * pair + 1), exact);
        }
        add_blocks(now, blocks, exact, first_halves(head[0]), sums);
    }

  private:
    // As ::unpack() does for one output, of one group.
    static Bits scale(const Bits (&head)[4], int group) {
        const Bits low = bits_and(right32(head[1], 4 * group), integers(0xf));
        const Bits high = bits_and(right32(head[0], 16 + 2 * group), integers(3));
        return less(bits_or(low, left32(high, 4)), integers(32));
    }
    static Bits of_table(Bits numbers) {
        return bits_xor(by_table(kvalues_iq4nl, bits_and(numbers, bytes(0xf))), bytes(0x80));
    }
};

}  // namespace
