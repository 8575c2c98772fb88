// Products of many rows by AMX's tiles of bf16: what a prompt's forwards are made of.
//
// Sums of 8-bit tiles have to be scaled after each group of 32 or 64 weights, through memory. Tiles of bf16
// add up over all of a width without a stop: weights are unpacked and scaled once, into a panel of 32 outputs
// that stays in the second-level cache, and used for all rows of the forward. Weights and activations keep
// eight bits and an exponent each, so an output is off by at most 2^-8 of its products' sizes; sums are
// floats. The bits are others than those of the kernels for few rows.
//
// amx.cpp includes this behind its formats. Layouts: pack_B in ggml-cpu/amx/mmq.cpp.

#pragma once

namespace {

constexpr int TILE_ROWS = 16, TILE_WIDTH = 32, TILE_SIZE = 1024;
constexpr int MOST_WIDTH = 2048;           // of a panel: 128 KiB, on the stack
constexpr int ROWS_BYTES = 1024 * 1024;    // of all rows' activations that one panel meets: half of a second-level cache

// Rounded to the nearest: a lane's two weights, the first below.
__m512i pair(__m512 first, __m512 second) {
    const __m512i half = _mm512_set1_epi32(0x8000);
    const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(first), half), 16);
    const __m512i high = _mm512_add_epi32(_mm512_castps_si512(second), half);
    return _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi32(int(0xffff0000))));
}

// Four weights of each of 16 outputs, unsigned bytes in a lane, become two rows of a tile: w * step + base.
void spread(__m512i quads, __m512 step, __m512 base, uint8_t * at) {
    const __m512i byte = _mm512_set1_epi32(0xff);
    const auto weight = [&](__m512i one) {
        return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_and_si512(one, byte)), step, base);
    };
    _mm512_storeu_si512(at, pair(weight(quads), weight(_mm512_srli_epi32(quads, 8))));
    _mm512_storeu_si512(at + 64, pair(weight(_mm512_srli_epi32(quads, 16)), weight(_mm512_srli_epi32(quads, 24))));
}

// --- the formats: a block of 16 outputs, as tiles of 32 weights that lie `2 * TILE_SIZE` apart -------

struct WideQ4_0 {
    static constexpr int WEIGHTS = 32;
    static constexpr size_t BYTES = Q4_0::TILE_BYTES;

    static void unpack_block(const uint8_t * from, uint8_t * tile) {
        __m512i weights[8];
        unpack(from, weights);
        const __m512 step = halves(from + 16 * COLUMNS), base = _mm512_mul_ps(step, _mm512_set1_ps(-8.0f));
        for (int i = 0; i < 8; ++i) spread(weights[i], step, base, tile + 128 * i);
    }
};

struct WideQ8_0 {
    static constexpr int WEIGHTS = 32;
    static constexpr size_t BYTES = (32 + 2 + 4) * COLUMNS;

    static void unpack_block(const uint8_t * from, uint8_t * tile) {
        const __m512i sign = _mm512_set1_epi8(char(0x80));  // as unsigned bytes they are 128 too large
        const __m512 step = halves(from + 32 * COLUMNS), base = _mm512_mul_ps(step, _mm512_set1_ps(-128.0f));
        for (int i = 0; i < 8; ++i) spread(_mm512_xor_si512(bytes(from + 64 * i), sign), step, base, tile + 128 * i);
    }
};

struct WideQ4_K {
    static constexpr int WEIGHTS = 256;
    static constexpr size_t BYTES = Q4_K::TILE_BYTES;

    static void unpack_block(const uint8_t * from, uint8_t * tile) {
        const uint8_t * scales = from + 128 * COLUMNS;
        const uint8_t * minima = scales + 8 * COLUMNS;  // of two groups in turns
        const __m512 whole = halves(minima + 8 * COLUMNS), low = halves(minima + 10 * COLUMNS);
        for (int group = 0; group < 8; ++group) {
            __m512i weights[8];
            unpack(from + 16 * COLUMNS * group, weights);
            const __m512i both = _mm512_cvtepu16_epi32(_mm256_loadu_si256(
                reinterpret_cast<const __m256i *>(minima + 2 * COLUMNS * (group / 2))));
            const __m512i least = group % 2 ? _mm512_srli_epi32(both, 8) : _mm512_and_si512(both, _mm512_set1_epi32(0xff));
            const __m512 step = _mm512_mul_ps(whole, _mm512_cvtepi32_ps(integers(scales + COLUMNS * group)));
            const __m512 base = _mm512_mul_ps(low, _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), least)));
            for (int i = 0; i < 8; ++i) spread(weights[i], step, base, tile + 2 * TILE_SIZE * group + 128 * i);
        }
    }
};

struct WideQ6_K {
    static constexpr int WEIGHTS = 256;
    static constexpr size_t BYTES = Q6_K::TILE_BYTES;

    static void unpack_block(const uint8_t * from, uint8_t * tile) {
        const uint8_t * scales = from + 192 * COLUMNS;
        const __m512 whole = halves(scales + 16 * COLUMNS);
        for (int group = 0; group < 16; ++group) {
            __m512i weights[4];
            unpack(from, group, weights);
            const __m512 step = _mm512_mul_ps(whole, _mm512_cvtepi32_ps(integers(scales + COLUMNS * group)));
            const __m512 base = _mm512_mul_ps(step, _mm512_set1_ps(-32.0f));
            uint8_t * at = tile + 2 * TILE_SIZE * (group / 2) + 512 * (group % 2);
            for (int i = 0; i < 4; ++i) spread(weights[i], step, base, at + 128 * i);
        }
    }
};

// --- one product --------------------------------------------------------------------------------------

// What was written at `at` is in memory now: the compiler does not know that tiles are loaded from there.
inline void settle(const void * at) { asm volatile("" : : "r"(at) : "memory"); }

struct alignas(64) TileConfiguration {
    uint8_t palette = 0, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
};

// All eight tiles are whole while this lives; then the thread has again what llama.cpp configured, once.
class WholeTiles {
    TileConfiguration before_;

  public:
    WholeTiles() {
        settle(&before_);
        _tile_storeconfig(&before_);
        TileConfiguration whole;
        whole.palette = 1;
        for (int i = 0; i < 8; ++i) whole.bytes[i] = 64, whole.rows[i] = TILE_ROWS;
        settle(&whole);
        _tile_loadconfig(&whole);
    }
    ~WholeTiles() {
        settle(&before_);
        _tile_loadconfig(&before_);
    }
};

// Where 16 rows of 16 outputs are added up.
struct Corner {
    float * at;
    size_t stride;  // bytes
};

// Up to 32 rows by the 32 outputs of a panel: tiles 0 to 3 add up, 4 and 5 are rows, 6 and 7 weights.
template <bool TWO>
void corner(const uint8_t * rows, size_t rows_stride, const uint8_t * panel, int n_tiles, bool first, const Corner (&out)[2][2]) {
    settle(panel);
    for (const auto & both : out) settle(both[0].at), settle(both[1].at);
    _tile_zero(0);
    _tile_zero(1);
    if (TWO) _tile_zero(2);
    if (TWO) _tile_zero(3);
    if (!first) {
        _tile_loadd(0, out[0][0].at, out[0][0].stride);
        _tile_loadd(1, out[0][1].at, out[0][1].stride);
        if (TWO) _tile_loadd(2, out[1][0].at, out[1][0].stride);
        if (TWO) _tile_loadd(3, out[1][1].at, out[1][1].stride);
    }
    for (int i = 0; i < n_tiles; ++i) {
        _tile_loadd(6, panel + 2 * TILE_SIZE * i, 64);
        _tile_loadd(4, rows + TILE_SIZE * i, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, panel + 2 * TILE_SIZE * i + TILE_SIZE, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (TWO) {
            _tile_loadd(5, rows + rows_stride + TILE_SIZE * i, 64);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, out[0][0].at, out[0][0].stride);
    _tile_stored(1, out[0][1].at, out[0][1].stride);
    if (TWO) _tile_stored(2, out[1][0].at, out[1][0].stride);
    if (TWO) _tile_stored(3, out[1][1].at, out[1][1].stride);
}

template <typename Format>
struct WideProduct {
    const ggml_tensor * weights, * x;
    ggml_tensor * dst;
    int width, rows, row_tiles, n_tiles;  // tiles of rows, and of the width

    explicit WideProduct(ggml_tensor * dst)
        : weights(dst->src[0]), x(dst->src[1]), dst(dst), width(int(weights->ne[0])), rows(int(dst->ne[1])),
          row_tiles((rows + TILE_ROWS - 1) / TILE_ROWS), n_tiles(width / TILE_WIDTH) {}

    size_t scratch_bytes() const { return size_t(row_tiles) * n_tiles * TILE_SIZE + 64; }

    // Every thread calls this: all round a share of the activations, then compute a share of the outputs.
    void compute(const ggml_compute_params * params) const {
        GGML_ASSERT(params->wsize >= scratch_bytes());
        auto * tiles = reinterpret_cast<uint8_t *>((uintptr_t(params->wdata) + 63) & ~uintptr_t(63));
        const Shortlist wanted = localspec_wanted(dst->ne[0]);
        wanted.silence(dst, params->ith, params->nth);
        parallel_for_ggml(params, row_tiles * TILE_ROWS, [&](int from, int to) {
            for (int row = from; row < to; ++row) round(row, tiles);
        });
        ggml_barrier(params->threadpool);
        const int part = panel_width();
        parallel_for_ggml(params, (wanted.count + 1) / 2, [&](int from, int to) {
            if (from >= to) return;
            const WholeTiles whole;
            alignas(64) uint8_t panel[MOST_WIDTH / TILE_WIDTH * 2 * TILE_SIZE];
            for (int begin = 0; begin < width; begin += part) {
                const int end = std::min(width, begin + part);
                for (int at = from; at < to; ++at) {
                    const int runs[2] = {wanted.run(2 * at), wanted.run(std::min(2 * at + 1, wanted.count - 1))};
                    for (int side = 0; side < 2; ++side) unpack_run(runs[side], begin, end, panel + TILE_SIZE * side);
                    meet(tiles, panel, runs, begin, end);
                }
            }
        });
    }

  private:
    // Equal parts of the width, of whole blocks: few, but as wide as fit the caches.
    int panel_width() const {
        const int most = std::clamp(ROWS_BYTES / (2 * TILE_ROWS * row_tiles), Format::WEIGHTS, MOST_WIDTH);
        const int blocks = width / Format::WEIGHTS, most_blocks = most / Format::WEIGHTS;
        const int parts = (blocks + most_blocks - 1) / most_blocks;
        return (blocks + parts - 1) / parts * Format::WEIGHTS;
    }

    // One row of activations, to the nearest even; rows that there are not are zeros.
    void round(int row, uint8_t * tiles) const {
        const auto * from = static_cast<const float *>(x->data) + size_t(row) * width;
        uint8_t * to = tiles + (size_t(row / TILE_ROWS) * n_tiles * TILE_ROWS + row % TILE_ROWS) * 64;
        const auto half = [](const float * at) {
            const __m512i bits = _mm512_loadu_si512(at);
            const __m512i even = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
            const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff)));
            return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
        };
        for (int i = 0; i < n_tiles; ++i, to += TILE_SIZE) {
            __m256i low = _mm256_setzero_si256(), high = low;
            if (row < rows) low = half(from + TILE_WIDTH * i), high = half(from + TILE_WIDTH * i + 16);
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), low);
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + 32), high);
        }
    }

    void unpack_run(int run, int begin, int end, uint8_t * panel) const {
        const auto * all = static_cast<const uint8_t *>(weights->data) + Format::BYTES * (width / Format::WEIGHTS) * run;
        for (int at = begin; at < end; at += Format::WEIGHTS) {
            Format::unpack_block(all + Format::BYTES * (at / Format::WEIGHTS), panel + 2 * TILE_SIZE * ((at - begin) / TILE_WIDTH));
        }
    }

    // All rows by a panel; a last tile of rows that is not whole goes through memory of its own.
    void meet(const uint8_t * tiles, const uint8_t * panel, const int (&runs)[2], int begin, int end) const {
        const size_t stride = size_t(n_tiles) * TILE_SIZE;
        alignas(64) float spare[2][TILE_ROWS * COLUMNS];
        for (int tile = 0; tile < row_tiles; tile += 2) {
            const bool two = tile + 1 < row_tiles;
            const int last = two, there = rows - TILE_ROWS * (tile + last);
            Corner out[2][2];
            for (int i = 0; i < 2; ++i) {
                for (int side = 0; side < 2; ++side) out[i][side] = {place(TILE_ROWS * (tile + i), runs[side]), dst->nb[1]};
            }
            if (there < TILE_ROWS) {
                for (int side = 0; side < 2; ++side) {
                    copy(out[last][side], {spare[side], 64}, begin ? there : 0);
                    out[last][side] = {spare[side], 64};
                }
            }
            const uint8_t * at = tiles + stride * tile + size_t(begin / TILE_WIDTH) * TILE_SIZE;
            const int count = (end - begin) / TILE_WIDTH;
            two ? corner<true>(at, stride, panel, count, begin == 0, out) : corner<false>(at, stride, panel, count, begin == 0, out);
            if (there < TILE_ROWS) {
                for (int side = 0; side < 2; ++side) {
                    copy(out[last][side], {place(TILE_ROWS * (tile + last), runs[side]), dst->nb[1]}, there);
                }
            }
        }
    }

    float * place(int row, int run) const { return static_cast<float *>(dst->data) + dst->ne[0] * row + COLUMNS * run; }

    static void copy(const Corner & from, const Corner & to, int count) {
        for (int row = 0; row < count; ++row) {
            std::memcpy(reinterpret_cast<char *>(to.at) + to.stride * row,
                        reinterpret_cast<const char *>(from.at) + from.stride * row, sizeof(float) * COLUMNS);
        }
    }
};

// From how many rows on these compute; they do not until somebody has found that they are faster.
std::atomic<int> & many_rows() {
    static std::atomic<int> rows{1 << 30};
    return rows;
}

// Calls `use` with what computes this product by tiles of bf16, if it is one of many rows; whether it is.
template <typename Use>
bool wide(ggml_tensor * dst, const Use & use) {
    const ggml_tensor * weights = dst->src[0];
    if (!localspec_rows_kernels() || dst->ne[1] < many_rows()) return false;
    switch (weights->type) {
        case GGML_TYPE_Q4_0: return use(WideProduct<WideQ4_0>(dst)), true;
        case GGML_TYPE_Q8_0: return use(WideProduct<WideQ8_0>(dst)), true;
        case GGML_TYPE_Q4_K: return use(WideProduct<WideQ4_K>(dst)), true;
        case GGML_TYPE_Q6_K: return use(WideProduct<WideQ6_K>(dst)), true;
        default: return false;
    }
}

}  // namespace
