// Products of few rows and of prompts: activations in eight bits, and how threads share one product.
//
// An instruction set has a file with its vectors (avx512.h, avx2.h, neon.h); x86.h and arm.h have the
// formats of weights over them. rows.cpp has the table of what is ours.

#pragma once

#define GGML_COMMON_IMPL_CPP
#include "ggml-common.h"

#include "ggml-cpu-impl.h"
#include "ggml-impl.h"
#include "shortlist.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#define EACH(NAME, COUNT) _Pragma("GCC unroll 16") for (int NAME = 0; NAME < COUNT; ++NAME)
#define EVERY(COUNT) EACH(i, COUNT)

namespace {

// Those of which products are ours.
template <typename... All> struct Formats {};

// Whether weights are of this format; where a CPU has two layouts of one type, these say it themselves.
template <typename Format>
bool fits(const ggml_tensor * weights) { return weights->type == Format::TYPE; }

// Of one row; what is known of its activations beforehand lies beside them.
struct Block32 {
    int8_t q[32];
    int32_t excess;  // what it makes of weights that are 8 too large
    float scale;
};

struct alignas(64) Block256 {
    int8_t q[256];
    int16_t sums[16];   // of 16 activations each
    int16_t pairs[16];  // of 32; the second half is zeros
    float scale;
};

template <typename T>
T load(const uint8_t * at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Q4_K's and Q5_K's twelve bytes: eight scales and eight minima of six bits.
inline void unpack(const uint8_t * at, uint64_t & scales, uint64_t & minima) {
    const uint32_t one = load<uint32_t>(at), two = load<uint32_t>(at + 4), three = load<uint32_t>(at + 8);
    const uint32_t high = (three & 0x0f0f0f0f) | (one >> 2 & 0x30303030);
    const uint32_t low = (three >> 4 & 0x0f0f0f0f) | (two >> 2 & 0x30303030);
    scales = (one & 0x3f3f3f3f) | uint64_t(high) << 32;
    minima = (two & 0x3f3f3f3f) | uint64_t(low) << 32;
}

// IQ4_XS' six bytes: eight scales of six bits, the upper two of each first. Signed bytes.
inline uint64_t unpack(const uint8_t * at) {
    uint64_t high = load<uint16_t>(at), low = load<uint32_t>(at + 2);
    high = (high | high << 24) & 0x000000ff000000ff;
    high = (high | high << 12) & 0x000f000f000f000f;
    high = (high | high << 6) & 0x0303030303030303;
    low = (low | low << 16) & 0x0000ffff0000ffff;
    low = (low | low << 8) & 0x00ff00ff00ff00ff;
    low = (low | low << 4) & 0x0f0f0f0f0f0f0f0f;
    const uint64_t less = (low | high << 4) ^ 0x2020202020202020, sign = less & 0x2020202020202020;
    return less | sign << 1 | sign << 2;
}

// Into the second-level cache: it waits for more lines at a time than the first, which alone leaves half of a
// memory's speed unused. In line, because GCC leaves out calls of what has no result.
[[gnu::always_inline]] inline void prefetch(const uint8_t * at, size_t bytes) {
    for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(at + line, 0, 2);
}

// What comes so far ahead of a block, in this group or in the next, if there is one.
template <typename Format>
[[gnu::always_inline]] inline void prefetch(const uint8_t * const (&sides)[Format::SIDES], const uint8_t * next,
                                            int block, int n_blocks) {
    if constexpr (Format::AHEAD_BYTES > 0) {
        constexpr int AHEAD = std::max<int>(1, Format::AHEAD_BYTES / (Format::BYTES * Format::SIDES));
        const int over = block + AHEAD - n_blocks;
        if (over >= 0 && !next) return;
        for (int i = 0; i < Format::SIDES; ++i) {
            const uint8_t * of_next = next + Format::BYTES * (n_blocks * i + over);
            prefetch(over < 0 ? sides[i] + Format::BYTES * AHEAD : of_next, Format::BYTES);
        }
    }
}

// One group of outputs by rows that are at most ROWS. Blocks lie block by block, `rows` in each; outputs
// row by row, `stride` apart. Of the group's units `count` are there; `next` are the weights that follow.
template <typename Format, int ROWS>
void group(int some, int n_blocks, int rows, const typename Format::Block * blocks, const uint8_t * weights,
           const uint8_t * next, int count, float * out, size_t stride) {
    const int now = ROWS <= Format::ROWS_UNROLLED ? ROWS : some;
    typename Format::template Sums<ROWS> sums(now);
    const uint8_t * sides[Format::SIDES];
    for (int i = 0; i < Format::SIDES; ++i) sides[i] = weights + (i < count ? i : 0) * Format::BYTES * n_blocks;
    for (int block = 0; block < n_blocks; ++block) {
        prefetch<Format>(sides, next, block, n_blocks);
        Format::multiply(now, blocks, sides, sums);
        blocks += rows;
        for (auto & side : sides) side += Format::BYTES;
    }
    Format::store(now, sums, count, out, stride);
}

// What threads share a product by: one that is held up leaves chunks of it to the others.
struct Chunks {
    static constexpr int OF_A_THREAD = 8;
    int groups, count;

    Chunks(int groups, int threads) : groups(groups), count(std::min(groups, OF_A_THREAD * threads)) {}
    int begin(int chunk) const { return int(int64_t(groups) * chunk / count); }
};

// How a product is cut: all of it is decided here, before anything is computed.
template <typename Format>
struct Product {
    using Block = typename Format::Block;

    const ggml_tensor *weights, *x;
    ggml_tensor * dst;
    int n_blocks, rows, units;
    Shortlist wanted;

    explicit Product(ggml_tensor * dst)
        : weights(dst->src[0]), x(dst->src[1]), dst(dst), n_blocks(int(weights->ne[0] / Format::WEIGHTS)),
          rows(int(dst->ne[1])), units(int(dst->ne[0] / Format::UNIT)), wanted(localspec_wanted(dst->ne[0])) {}

    size_t scratch_bytes(int) const { return sizeof(Block) * n_blocks * rows + alignof(Block); }

    // Every thread calls this: all quantize a share of the activations, then take groups of outputs.
    void compute(const ggml_compute_params * params) const {
        GGML_ASSERT(params->wsize >= scratch_bytes(params->nth));
        const uintptr_t scratch = (uintptr_t(params->wdata) + alignof(Block) - 1) & ~(alignof(Block) - 1);
        auto * blocks = reinterpret_cast<Block *>(scratch);
        const Chunks chunks(wanted.count * GROUPS_OF_A_RUN, params->nth);
        int chunk = params->ith;
        if (chunk < chunks.count) begin(weights_of(chunks.begin(chunk)));
        for (int i = params->ith; i < n_blocks * rows; i += params->nth) {
            const int row = i % rows, block = i / rows;
            const auto * from = static_cast<const char *>(x->data) + row * x->nb[1];
            quantize(reinterpret_cast<const float *>(from) + block * Format::WEIGHTS, blocks[i]);
        }
        wanted.silence(dst, params->ith, params->nth);
        if (params->ith == 0) ggml_threadpool_chunk_set(params->threadpool, params->nth);
        ggml_barrier(params->threadpool);
        while (chunk < chunks.count) {  // who takes one knows already which is next, and fetches its weights in time
            const int after = ggml_threadpool_chunk_add(params->threadpool, 1);
            const auto * next = after < chunks.count ? weights_of(chunks.begin(after)) : nullptr;
            const int from = chunks.begin(chunk), to = chunks.begin(chunk + 1);
            for (int first = 0; first < rows; first += ROWS_IN_CACHE) {
                some(blocks, from, to, next, first, std::min(rows, first + ROWS_IN_CACHE));
            }
            chunk = after;
        }
    }

  private:
    static constexpr int GROUPS_OF_A_RUN = Shortlist::RUN / (Format::SIDES * Format::UNIT);
    static_assert(GROUPS_OF_A_RUN * Format::SIDES * Format::UNIT == Shortlist::RUN);
    static constexpr int ROWS_IN_CACHE = 32;  // whose activations stay in the second-level cache

    int first_unit(int group) const {
        return (wanted.run(group / GROUPS_OF_A_RUN) * GROUPS_OF_A_RUN + group % GROUPS_OF_A_RUN) * Format::SIDES;
    }

    const uint8_t * weights_of(int group) const {
        return static_cast<const uint8_t *>(weights->data) + Format::BYTES * n_blocks * first_unit(group);
    }

    // While activations are quantized, the first weights come.
    void begin(const uint8_t * at) const {
        EVERY(Format::SIDES) prefetch(at + Format::BYTES * n_blocks * i, Format::AHEAD_BYTES / Format::SIDES);
    }

    void some(const Block * blocks, int from, int to, const uint8_t * next, int first, int end) const {
        for (int i = from; i < to; ++i) {
            const int unit = first_unit(i);
            if (unit >= units) continue;  // of the last run there may be less
            const auto * at = weights_of(i), * after = i + 1 < to ? weights_of(i + 1) : next;
            for (int row = first; row < end;) {
                // Two equal parts take less than a whole one and a rest.
                const int left = end - row, parts = (left + Format::ROWS_AT_ONCE - 1) / Format::ROWS_AT_ONCE;
                const int now = (left + parts - 1) / parts;
                auto * out = reinterpret_cast<float *>(static_cast<char *>(dst->data) + row * dst->nb[1]);
                by_rows<Format::ROWS_AT_ONCE>(now, blocks + row, at, after, std::min(Format::SIDES, units - unit),
                                      out + unit * Format::UNIT);
                row += now;
            }
        }
    }

    // Up to ROWS_UNROLLED rows have code of their own, all others share some.
    template <int ROWS>
    void by_rows(int now, const Block * blocks, const uint8_t * at, const uint8_t * next, int count,
                 float * out) const {
        if constexpr (ROWS > 1) {
            constexpr int FEWER = std::min(ROWS - 1, Format::ROWS_UNROLLED);
            if (now <= FEWER) return by_rows<FEWER>(now, blocks, at, next, count, out);
        }
        group<Format, ROWS>(now, n_blocks, rows, blocks, at, next, count, out, dst->nb[1] / sizeof(float));
    }
};

}  // namespace
