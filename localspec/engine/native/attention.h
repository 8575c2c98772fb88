// Attention over keys and values in half precision (GGML_OP_FLASH_ATTN_EXT).
//
// Keys and values are unpacked once for all heads and rows that share them, and sums are floats. A row's
// numbers come of the cells that it sees alone: they are added in their order, in spans of a fixed length,
// which threads may share, and masked ones leave no trace. So they are the same bits whatever rows are
// beside it, however many threads there are and however far the cache is padded. Softmax while reading:
// Milakov and Gimelshein 2018 (arXiv 1805.02867), Rabe and Staats 2021 (arXiv 2112.05682).

#pragma once

#include "rows.h"

namespace {

// A sum of values by weights e^(score - peak), and the sum of these weights; the values' sums follow it.
struct alignas(64) PartialSum {
    float peak, weight;

    float * sums() { return reinterpret_cast<float *>(this + 1); }
    const float * sums() const { return reinterpret_cast<const float *>(this + 1); }
};

struct Attention : Vectors {
    const ggml_tensor *q, *k, *v, *mask, *sinks;
    ggml_tensor * dst;
    int rows, heads, streams, cells, key, value;  // `key` and `value`: numbers in one of a head
    int sharing;                                  // heads with the same keys and values
    int at_once, groups, spans;                   // rows that are read together, and how often that is
    float scale, cap;

    explicit Attention(ggml_tensor * dst)
        : q(dst->src[0]), k(dst->src[1]), v(dst->src[2]), mask(dst->src[3]), sinks(dst->src[4]), dst(dst),
          rows(int(q->ne[1])), heads(int(q->ne[2])), streams(int(q->ne[3])), cells(int(k->ne[1])),
          key(int(k->ne[0])), value(int(v->ne[0])), sharing(int(q->ne[2] / k->ne[2])) {
        at_once = std::max(1, std::min(rows, PAIRS / sharing));
        groups = (rows + at_once - 1) / at_once;
        spans = (cells + SPAN - 1) / SPAN;
        std::memcpy(&scale, dst->op_params, sizeof scale);
        std::memcpy(&cap, dst->op_params + 2, sizeof cap);
        if (cap != 0.0f) scale /= cap;
    }

    // Whether this attention is ours. Positions by slopes (ALiBi) and other types are llama.cpp's.
    static bool takes(const ggml_tensor * op) {
        const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3];
        float slopes;
        std::memcpy(&slopes, op->op_params + 1, sizeof slopes);
        return slopes == 0.0f && q->type == GGML_TYPE_F32 && k->type == GGML_TYPE_F16 && v->type == GGML_TYPE_F16 &&
               k->ne[1] % STEP == 0 && k->ne[0] % LANES == 0 && v->ne[0] % LANES == 0 &&
               q->ne[2] % k->ne[2] == 0 && q->ne[2] / k->ne[2] <= PAIRS && k->ne[2] == v->ne[2] &&
               q->ne[3] == k->ne[3] && q->ne[3] == v->ne[3] && (!mask || mask->ne[2] == 1) &&
               q->nb[0] == sizeof(float) && k->nb[0] == sizeof(ggml_fp16_t) && v->nb[0] == sizeof(ggml_fp16_t);
    }

    size_t scratch_bytes(int threads) const {
        const size_t kept = shared(threads) ? size_t(streams) * rows * heads * spans : 0;
        return Workspace::bytes(*this) * threads + kept * sum_bytes() + alignof(PartialSum);
    }

    // Every thread calls this: each takes spans, or all spans of a group of rows where there are enough.
    void compute(const ggml_compute_params * params) const {
        GGML_ASSERT(params->wsize >= scratch_bytes(params->nth));
        const uintptr_t at = (uintptr_t(params->wdata) + alignof(PartialSum) - 1) & ~(alignof(PartialSum) - 1);
        char * const base = reinterpret_cast<char *>(at);
        const Workspace work(*this, base + Workspace::bytes(*this) * params->ith);
        char * const kept = base + Workspace::bytes(*this) * params->nth;
        const bool cut = shared(params->nth);
        const int parts = cut ? spans : 1, tasks = streams * int(k->ne[2]) * groups * parts;
        if (params->ith == 0) ggml_threadpool_chunk_set(params->threadpool, params->nth);
        ggml_barrier(params->threadpool);
        for (int task = params->ith; task < tasks; task = ggml_threadpool_chunk_add(params->threadpool, 1)) {
            const Group group(*this, task / parts);
            prepare(group, work);
            if (cut) {
                span(group, work, task % parts);
                for (int i = 0; i < group.pairs; ++i) {
                    std::memcpy(part(kept, group.index(*this, i), task % parts), work.parts(i), sum_bytes());
                }
                continue;
            }
            for (int i = 0; i < group.pairs; ++i) clear(*work.totals(i));
            for (int each = 0; each < spans; ++each) {
                span(group, work, each);
                for (int i = 0; i < group.pairs; ++i) join(*work.totals(i), *work.parts(i));
            }
            for (int i = 0; i < group.pairs; ++i) finish(*work.totals(i), group.index(*this, i));
        }
        if (!cut) return;
        ggml_barrier(params->threadpool);
        for (int index = params->ith; index < streams * rows * heads; index += params->nth) {
            clear(*work.totals(0));
            for (int each = 0; each < spans; ++each) join(*work.totals(0), *part(kept, index, each));
            finish(*work.totals(0), index);
        }
    }

  private:
    static constexpr int PAIRS = 64;      // of a row and a head, for which keys and values are unpacked once
    static constexpr int STEP = 64;       // cells whose scores are weighed together
    static constexpr int SPAN = 512;      // cells of which one thread makes one sum
    static constexpr int BLOCKS = STEP / LANES;

    // Rows of one stream, with the heads that share keys and values there.
    struct Group {
        int stream, kv_head, first, rows, pairs;

        Group(const Attention & op, int number)
            : stream(number / op.groups / int(op.k->ne[2])), kv_head(number / op.groups % int(op.k->ne[2])),
              first(number % op.groups * op.at_once), rows(std::min(op.at_once, op.rows - first)),
              pairs(rows * op.sharing) {}

        int row(const Attention & op, int pair) const { return first + pair / op.sharing; }
        int head(const Attention & op, int pair) const { return kv_head * op.sharing + pair % op.sharing; }
        int index(const Attention & op, int pair) const {
            return (stream * op.rows + row(op, pair)) * op.heads + head(op, pair);
        }
    };

    // Memory of one thread: by pair queries, scores of a step and sums; and keys or values, unpacked.
    struct Workspace {
        float *queries, *scores, *tile;
        char *first_part, *first_total;
        size_t sum_bytes;

        Workspace(const Attention & op, char * at)
            : queries(reinterpret_cast<float *>(at)), scores(queries + PAIRS * op.key), tile(scores + PAIRS * STEP),
              first_part(reinterpret_cast<char *>(tile + LANES * std::max(op.key, op.value))),
              first_total(first_part + PAIRS * op.sum_bytes()), sum_bytes(op.sum_bytes()) {}

        static size_t bytes(const Attention & op) {
            const size_t numbers = PAIRS * (op.key + STEP) + LANES * std::max(op.key, op.value);
            return (numbers * sizeof(float) + 2 * PAIRS * op.sum_bytes() + 63) / 64 * 64;
        }
        PartialSum * parts(int pair) const { return at(first_part, pair); }
        PartialSum * totals(int pair) const { return at(first_total, pair); }
        PartialSum * at(char * first, int i) const { return reinterpret_cast<PartialSum *>(first + sum_bytes * i); }
    };

    size_t sum_bytes() const { return (sizeof(PartialSum) + value * sizeof(float) + 63) / 64 * 64; }

    // Whether so many threads share spans, because there are too few groups of rows for them.
    bool shared(int threads) const { return spans > 1 && streams * int(k->ne[2]) * groups < 2 * threads; }

    PartialSum * part(char * kept, int index, int span) const {
        return reinterpret_cast<PartialSum *>(kept + sum_bytes() * (size_t(index) * spans + span));
    }

    const ggml_fp16_t * seen_by(int row, int stream) const {
        if (!mask) return nullptr;
        const char * at = static_cast<const char *>(mask->data) + row * mask->nb[1];
        return reinterpret_cast<const ggml_fp16_t *>(at + stream % mask->ne[3] * mask->nb[3]);
    }

    void prepare(const Group & group, const Workspace & work) const {
        for (int i = 0; i < group.pairs; ++i) {
            const char * at = static_cast<const char *>(q->data) + group.row(*this, i) * q->nb[1] +
                              group.head(*this, i) * q->nb[2] + group.stream * q->nb[3];
            const auto * from = reinterpret_cast<const float *>(at);
            float * const query = work.queries + i * key;
            for (int d = 0; d < key; d += LANES) store(query + d, mul(of_floats(from + d), all(scale)));
        }
    }

    void clear(PartialSum & sum) const {
        sum.peak = -INFINITY, sum.weight = 0.0f;
        std::fill_n(sum.sums(), value, 0.0f);
    }

    // A span of cells, for all pairs: their sums are in the workspace then.
    void span(const Group & group, const Workspace & work, int number) const {
        for (int i = 0; i < group.pairs; ++i) clear(*work.parts(i));
        const int end = std::min(cells, (number + 1) * SPAN);
        for (int cell = number * SPAN; cell < end; cell += STEP) {
            uint32_t seen[PAIRS], any = 0;  // blocks of cells that a row sees
            for (int row = 0; row < group.rows; ++row) {
                seen[row] = blocks_seen(seen_by(group.first + row, group.stream), cell);
                any |= seen[row];
            }
            if (any == 0) continue;
            score(group, work, cell, seen, any);
            for (int i = 0; i < group.pairs; ++i) {
                if (seen[i / sharing]) weigh(*work.parts(i), work.scores + i * STEP);
            }
            add_values(group, work, cell, seen, any);
        }
    }

    static uint32_t blocks_seen(const ggml_fp16_t * mask, int cell) {
        if (!mask) return (1u << BLOCKS) - 1;
        uint32_t seen = 0;
        for (int block = 0; block < BLOCKS; ++block) {
            bool any = false;
            for (int i = 0; i < LANES; ++i) any |= mask[cell + block * LANES + i] != NEVER;
            seen |= uint32_t(any) << block;
        }
        return seen;
    }

    static constexpr ggml_fp16_t NEVER = 0xfc00;  // minus infinity

    // Keys or values of as many cells as a vector has lanes.
    void unpack(const ggml_tensor * from, const Group & group, int cell, int width, float * tile) const {
        const char * at = static_cast<const char *>(from->data) + group.kv_head * from->nb[2] +
                          group.stream * from->nb[3] + size_t(cell) * from->nb[1];
        for (int i = 0; i < LANES; ++i, at += from->nb[1], tile += width) {
            const auto * halves = reinterpret_cast<const ggml_fp16_t *>(at);
            for (int d = 0; d < width; d += LANES) store(tile + d, of_halves(halves + d));
        }
    }

    void score(const Group & group, const Workspace & work, int cell, const uint32_t * seen, uint32_t any) const {
        for (int block = 0; block < BLOCKS; ++block) {
            const int at = cell + block * LANES;
            if (any >> block & 1) unpack(k, group, at, key, work.tile);
            for (int i = 0; i < group.pairs; ++i) {
                float * const scores = work.scores + i * STEP + block * LANES;
                if (!(seen[i / sharing] >> block & 1)) {
                    store(scores, all(-INFINITY));
                    continue;
                }
                store(scores, products(work.queries + i * key, work.tile));
                if (cap != 0.0f) {
                    for (int j = 0; j < LANES; ++j) scores[j] = cap * std::tanh(scores[j]);
                }
                const ggml_fp16_t * seen_here = seen_by(group.row(*this, i), group.stream);
                if (seen_here) {  // what is in a masked cell, no number perhaps, is nobody's business
                    const Floats masked = of_halves(seen_here + at);
                    store(scores, add(where_above(masked, -INFINITY, of_floats(scores)), masked));
                }
            }
        }
    }

    // A query by the keys of a tile.
    Floats products(const float * query, const float * tile) const {
        Floats sums[LANES];
        for (auto & sum : sums) sum = zeros();
        for (int d = 0; d < key; d += LANES) {
            const Floats x = of_floats(query + d);
            EVERY(LANES) sums[i] = fma(of_floats(tile + i * key + d), x, sums[i]);
        }
        return totals(sums);
    }

    // Scores become weights; what was summed so far is measured by the new peak.
    void weigh(PartialSum & sum, float * scores) const {
        Floats top = of_floats(scores), weight = zeros();
        for (int i = LANES; i < STEP; i += LANES) top = max(top, of_floats(scores + i));
        const float peak = std::max(sum.peak, highest(top));
        if (peak == -INFINITY) return std::fill_n(scores, STEP, 0.0f), void();
        for (int i = 0; i < STEP; i += LANES) {
            const Floats weights = exp(sub(of_floats(scores + i), all(peak)));
            store(scores + i, weights);
            weight = add(weight, weights);
        }
        const float fading = exp(sum.peak - peak);
        sum.weight = sum.weight * fading + total(weight);
        sum.peak = peak;
        if (fading != 1.0f) {
            for (int d = 0; d < value; d += LANES) store(sum.sums() + d, mul(of_floats(sum.sums() + d), all(fading)));
        }
    }

    void add_values(const Group & group, const Workspace & work, int cell, const uint32_t * seen, uint32_t any) const {
        for (int block = 0; block < BLOCKS; ++block) {
            if (!(any >> block & 1)) continue;
            unpack(v, group, cell + block * LANES, value, work.tile);
            for (int i = 0; i < group.pairs; ++i) {
                if (!(seen[i / sharing] >> block & 1)) continue;
                const float * weights = work.scores + i * STEP + block * LANES;
                float * sums = work.parts(i)->sums();
                for (int d = 0; d < value; d += AT_ONCE * LANES) {
                    add_some<AT_ONCE>((value - d) / LANES, weights, work.tile + d, sums + d);
                }
            }
        }
    }

    static constexpr int AT_ONCE = 8;  // vectors of sums that stay in registers

    template <int COUNT>
    void add_some(int count, const float * weights, const float * tile, float * out) const {
        if constexpr (COUNT > 0) {
            if (count < COUNT) return add_some<COUNT - 1>(count, weights, tile, out);
            Floats sums[COUNT];
            EVERY(COUNT) sums[i] = of_floats(out + i * LANES);
            for (int cell = 0; cell < LANES; ++cell) {
                if (weights[cell] == 0.0f) continue;
                const Floats weight = all(weights[cell]);
                EVERY(COUNT) sums[i] = fma(of_floats(tile + cell * value + i * LANES), weight, sums[i]);
            }
            EVERY(COUNT) store(out + i * LANES, sums[i]);
        }
    }

    // One more span, always the next.
    void join(PartialSum & whole, const PartialSum & part) const {
        const float peak = std::max(whole.peak, part.peak);
        if (part.peak == -INFINITY) return;
        const float old = exp(whole.peak - peak), fresh = exp(part.peak - peak);
        whole.weight = whole.weight * old + part.weight * fresh;
        whole.peak = peak;
        for (int d = 0; d < value; d += LANES) {
            const Floats faded = mul(of_floats(whole.sums() + d), all(old));
            store(whole.sums() + d, fma(of_floats(part.sums() + d), all(fresh), faded));
        }
    }

    // A sink is a score of its head, with no value.
    void finish(const PartialSum & sum, int index) const {
        float by = sum.weight == 0.0f ? 0.0f : 1.0f / sum.weight;
        if (sinks) {
            const float sink = static_cast<const float *>(sinks->data)[index % heads];
            const float peak = std::max(sum.peak, sink), fading = exp(sum.peak - peak);
            by = fading / (sum.weight * fading + exp(sink - peak));
        }
        auto * out = reinterpret_cast<float *>(static_cast<char *>(dst->data) + index * dst->nb[1]);
        for (int d = 0; d < value; d += LANES) store(out + d, mul(of_floats(sum.sums() + d), all(by)));
    }

    static float exp(float x) { return first(exp(all(x))); }

    // Of numbers that are not positive: 2^n e^r, with r within half of ln 2 of zero. Below -87 it is 0.
    static Floats exp(Floats x) {
        const Floats shifted = fma(x, all(1.44269504f), all(12582912.0f)), n = sub(shifted, all(12582912.0f));
        const Floats r = fma(n, all(-1.42860677e-6f), fma(n, all(-0.693145752f), x));
        Floats sum = all(1.0f / 5040);
        for (float next : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
            sum = fma(sum, r, all(next));
        }
        return where_above(x, -87.0f, raised(sum, shifted));
    }
};

}  // namespace
