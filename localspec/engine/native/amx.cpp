// Forwards of few rows on a CPU with AMX.
//
// llama.cpp multiplies its packed weights there in two ways: for one row by AVX-512 VNNI, and for more
// by AMX tiles, which are made for the hundreds of rows of a prompt: for them every weight is unpacked
// through memory. A round of speculation has 2 to 16 rows. Here a weight is unpacked once, in registers,
// for up to twelve rows. The arithmetic of a row is that of llama.cpp's one-row kernels, operation by
// operation, so its numbers are the same bits for any number of rows, and the same as without this file.
//
// rows.cmake compiles it into ggml's CPU library, where llama.cpp's own functions of these names get
// the suffix _tiles. The environment's LOCALSPEC_ROWS=0 leaves everything to them. Layouts of packed
// weights: pack_B in ggml-cpu/amx/mmq.cpp. What is not packed there goes the way of rows.cpp, which also
// makes one product of rows in batches before they come here.

#include "amx/amx.h"
#include "amx/common.h"
#include "ggml-impl.h"
#include "shortlist.h"
#include "stacked.h"
#include "traits.h"

#include <atomic>
#include <cstring>

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)

#include <immintrin.h>

void ggml_backend_amx_mul_mat(const ggml_compute_params * params, ggml_tensor * dst);
void ggml_backend_amx_mul_mat_tiles(const ggml_compute_params * params, ggml_tensor * dst);
size_t ggml_backend_amx_desired_wsize(const ggml_tensor * dst);
size_t ggml_backend_amx_desired_wsize_tiles(const ggml_tensor * dst);
ggml_backend_buffer_type_t ggml_backend_amx_buffer_type_stock();

// The kernels in use, or nothing (rows.cpp).
extern "C" const char * localspec_rows_kernels();

namespace {

constexpr int COLUMNS = 16;       // outputs of one tile of packed weights
constexpr int ROWS_AT_ONCE = 12;  // of which the sums stay in registers
constexpr int ROWS_IN_CACHE = 32; // whose activations stay in the second-level cache beside a tile
constexpr int AHEAD_BYTES = 2048; // a core's own prefetcher stops at the end of each page

#define EVERY_ROW _Pragma("GCC unroll 12") for (int row = 0; row < ROWS; ++row)

// Activations of one row in eight bits. Four of them, a quad, are what one lane of VNNI multiplies.
// VNNI takes weights as unsigned: what that adds to each sum is known beforehand, and its negative
// is the offset.
struct Block32 {
    int32_t quads[8];
    int32_t offset;
    float scale;
};

struct Block256 {
    int32_t quads[64];
    int32_t offsets[16];  // of 16 activations each, for Q6_K
    int32_t pairs[4];     // sums of 32 activations, two in each, for the minima of Q4_K
    float scale;
};

__m512i bytes(const uint8_t * at) { return _mm512_loadu_si512(at); }

__m512i integers(const uint8_t * at) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(at)));
}

__m512 halves(const uint8_t * at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(at)));
}

int32_t sum(__m512i values) {
    alignas(64) int32_t each[16];
    _mm512_store_si512(each, values);
    int32_t all = 0;
    for (int32_t one : each) all += one;
    return all;
}

// 4-bit weights of 32 activations: eight vectors, each for one quad.
void unpack(const uint8_t * packed, __m512i (&weights)[8]) {
    const __m512i low = _mm512_set1_epi8(0xf);
    for (int i = 0; i < 4; ++i) {
        const __m512i both = bytes(packed + 64 * i);
        weights[2 * i] = _mm512_and_si512(both, low);
        weights[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
}

template <int QUADS>
__m512i dot(__m512i start, const __m512i (&weights)[QUADS], const int32_t * quads) {
    for (int i = 0; i < QUADS; ++i) {
        start = _mm512_dpbusd_epi32(start, weights[i], _mm512_set1_epi32(quads[i]));
    }
    return start;
}

// --- the formats: how activations are quantized for it, and rows multiplied by one tile --------------

struct Q4_0 {
    using Block = Block32;
    static constexpr int WEIGHTS = 32;
    static constexpr size_t TILE_BYTES = (16 + 2) * COLUMNS;
    static constexpr int MOST_ROWS = 48;  // from here on AMX is faster

    // quantize_row_q8_0
    static void quantize(const float * x, Block & block) {
        const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
        const float peak = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
        const __m512 inverse = _mm512_set1_ps(peak != 0.0f ? 127.0f / peak : 0.0f);
        const __m512i p = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
        const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(block.quads), _mm512_cvtsepi32_epi8(p));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(block.quads + 4), _mm512_cvtsepi32_epi8(q));
        block.offset = -8 * sum(_mm512_add_epi32(p, q));
        block.scale = _cvtsh_ss(_cvtss_sh(peak / 127.0f, 0));
    }

    template <int ROWS>
    static void multiply(const Block * blocks, const uint8_t * tile, __m512 (&sums)[ROWS]) {
        __m512i weights[8];
        unpack(tile, weights);
        const __m512 step = halves(tile + 16 * COLUMNS);
        EVERY_ROW {
            const __m512i whole = dot(_mm512_set1_epi32(blocks[row].offset), weights, blocks[row].quads);
            const __m512 scale = _mm512_mul_ps(step, _mm512_set1_ps(blocks[row].scale));
            sums[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, sums[row]);
        }
    }
};

struct OfK {
    using Block = Block256;
    static constexpr int WEIGHTS = 256;
    static constexpr int MOST_ROWS = 1 << 30;  // AMX is slower for prompts too: its sums are scaled in memory

    // quantize_row_q8_K_ref
    static void quantize(const float * x, Block & block) {
        __m512 most = _mm512_setzero_ps();
        for (int i = 0; i < 256; i += 16) most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
        const float peak = _mm512_reduce_max_ps(most);
        float furthest = 0.0f;  // with its sign; the first, if there are two
        for (int i = 240; i >= 0; i -= 16) {
            const __m512 size = _mm512_abs_ps(_mm512_loadu_ps(x + i));
            const __mmask16 found = _mm512_cmpeq_ps_mask(size, _mm512_set1_ps(peak));
            if (found) furthest = x[i + __builtin_ctz(found)];
        }
        const float inverse = peak != 0.0f ? -127.0f / furthest : 0.0f;
        for (int i = 0; i < 16; ++i) {
            const __m512 scaled = _mm512_mul_ps(_mm512_set1_ps(inverse), _mm512_loadu_ps(x + 16 * i));
            const __m512i q = _mm512_min_epi32(_mm512_cvtps_epi32(scaled), _mm512_set1_epi32(127));
            _mm_storeu_si128(reinterpret_cast<__m128i *>(block.quads + 4 * i), _mm512_cvtsepi32_epi8(q));
        }
        int32_t sums[16];
        for (int i = 0; i < 16; i += 4) {
            const __m512i quads = _mm512_loadu_si512(block.quads + 4 * i);
            __m512i all = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), quads);
            all = _mm512_add_epi32(all, _mm512_shuffle_epi32(all, _MM_PERM_CDAB));
            all = _mm512_add_epi32(all, _mm512_shuffle_epi32(all, _MM_PERM_BADC));
            all = _mm512_maskz_compress_epi32(0x1111, all);
            _mm_storeu_si128(reinterpret_cast<__m128i *>(sums + i), _mm512_castsi512_si128(all));
        }
        for (int i = 0; i < 16; ++i) block.offsets[i] = -32 * sums[i];
        for (int i = 0; i < 4; ++i) {
            const uint32_t first = sums[4 * i] + sums[4 * i + 1], second = sums[4 * i + 2] + sums[4 * i + 3];
            block.pairs[i] = int32_t((second << 16) | (first & 0xffff));
        }
        block.scale = peak != 0.0f ? 1.0f / inverse : 0.0f;
    }
};

struct Q4_K : OfK {
    static constexpr size_t TILE_BYTES = (128 + 8 + 8 + 2 + 2) * COLUMNS;

    template <int ROWS>
    static void multiply(const Block * blocks, const uint8_t * tile, __m512 (&sums)[ROWS]) {
        const uint8_t * scales = tile + 128 * COLUMNS;
        const uint8_t * minima = scales + 8 * COLUMNS;
        __m512i wholes[ROWS];
        EVERY_ROW wholes[row] = _mm512_setzero_si512();
        for (int group = 0; group < 8; ++group) {
            __m512i weights[8];
            unpack(tile + 16 * COLUMNS * group, weights);
            const __m512i scale = integers(scales + COLUMNS * group);
            EVERY_ROW {
                const __m512i whole = dot(_mm512_setzero_si512(), weights, blocks[row].quads + 8 * group);
                wholes[row] = _mm512_add_epi32(wholes[row], _mm512_mullo_epi32(whole, scale));
            }
        }
        __m512i lows[4];
        for (int i = 0; i < 4; ++i) {
            const auto * at = reinterpret_cast<const __m256i *>(minima + 2 * COLUMNS * i);
            lows[i] = _mm512_cvtepi8_epi16(_mm256_loadu_si256(at));
        }
        const __m512 step = halves(minima + 8 * COLUMNS), low_step = halves(minima + 10 * COLUMNS);
        EVERY_ROW {
            const __m512 scale = _mm512_set1_ps(blocks[row].scale);
            __m512i low = _mm512_setzero_si512();
            for (int i = 0; i < 4; ++i) {
                low = _mm512_dpwssds_epi32(low, lows[i], _mm512_set1_epi32(blocks[row].pairs[i]));
            }
            const __m512 up = _mm512_mul_ps(step, scale), down = _mm512_mul_ps(low_step, scale);
            sums[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(wholes[row]), up, sums[row]);
            sums[row] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(low), down, sums[row]);
        }
    }
};

// 6-bit weights of 16 activations.
void unpack(const uint8_t * tile, int group, __m512i (&weights)[4]) {
    const __m512i low = _mm512_set1_epi8(0xf), high = _mm512_set1_epi8(0x30);
    const __m512i one = bytes(tile + 128 * group), two = bytes(tile + 128 * group + 64);
    const __m512i top = bytes(tile + 128 * COLUMNS + 64 * group);
    weights[0] = _mm512_and_si512(one, low) | _mm512_and_si512(_mm512_slli_epi16(top, 4), high);
    weights[1] = _mm512_and_si512(_mm512_srli_epi16(one, 4), low) | _mm512_and_si512(_mm512_slli_epi16(top, 2), high);
    weights[2] = _mm512_and_si512(two, low) | _mm512_and_si512(top, high);
    weights[3] = _mm512_and_si512(_mm512_srli_epi16(two, 4), low) | _mm512_and_si512(_mm512_srli_epi16(top, 2), high);
}

struct Q6_K : OfK {
    static constexpr size_t TILE_BYTES = (128 + 64 + 16 + 2) * COLUMNS;

    template <int ROWS>
    static void multiply(const Block * blocks, const uint8_t * tile, __m512 (&sums)[ROWS]) {
        const uint8_t * scales = tile + 192 * COLUMNS;
        __m512i wholes[ROWS];
        EVERY_ROW wholes[row] = _mm512_setzero_si512();
        for (int group = 0; group < 16; ++group) {
            __m512i weights[4];
            unpack(tile, group, weights);
            const __m512i scale = integers(scales + COLUMNS * group);
            EVERY_ROW {
                const __m512i offset = _mm512_set1_epi32(blocks[row].offsets[group]);
                const __m512i whole = dot(offset, weights, blocks[row].quads + 4 * group);
                wholes[row] = _mm512_add_epi32(wholes[row], _mm512_mullo_epi32(whole, scale));
            }
        }
        const __m512 step = halves(scales + 16 * COLUMNS);
        EVERY_ROW {
            const __m512 scale = _mm512_mul_ps(step, _mm512_set1_ps(blocks[row].scale));
            sums[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(wholes[row]), scale, sums[row]);
        }
    }
};

// --- one product --------------------------------------------------------------------------------------

// A column of tiles by ROWS rows. Blocks lie block by block, `rows` in each; outputs row by row.
template <typename Format, int ROWS>
void column(int n_blocks, int rows, const typename Format::Block * blocks, const uint8_t * tile, float * out,
            size_t outputs) {
    __m512 sums[ROWS];
    EVERY_ROW sums[row] = _mm512_setzero_ps();
    for (int block = 0; block < n_blocks; ++block) {
        for (size_t line = 0; line < Format::TILE_BYTES; line += 64) {
            _mm_prefetch(reinterpret_cast<const char *>(tile + AHEAD_BYTES + line), _MM_HINT_T0);
        }
        Format::template multiply<ROWS>(blocks, tile, sums);
        blocks += rows;
        tile += Format::TILE_BYTES;
    }
    EVERY_ROW _mm512_storeu_ps(out + row * outputs, sums[row]);
}

// Every thread calls this: all quantize a share of the activations, then compute a share of the columns.
template <typename Format>
void product(const ggml_compute_params * params, ggml_tensor * dst) {
    using Block = typename Format::Block;
    static constexpr decltype(&column<Format, 1>) columns[ROWS_AT_ONCE] = {
        column<Format, 1>, column<Format, 2>, column<Format, 3>, column<Format, 4>,
        column<Format, 5>, column<Format, 6>, column<Format, 7>, column<Format, 8>,
        column<Format, 9>, column<Format, 10>, column<Format, 11>, column<Format, 12>,
    };
    const auto * x = static_cast<const float *>(dst->src[1]->data);
    const auto * weights = static_cast<const uint8_t *>(dst->src[0]->data);
    auto * out = static_cast<float *>(dst->data);
    auto * blocks = static_cast<Block *>(params->wdata);
    const int width = dst->src[0]->ne[0], outputs = dst->ne[0], rows = dst->ne[1];
    const int n_blocks = width / Format::WEIGHTS;
    const Shortlist wanted = localspec_wanted(outputs);
    static_assert(Shortlist::RUN == COLUMNS);
    GGML_ASSERT(params->wsize >= sizeof(Block) * n_blocks * rows);

    wanted.silence(dst, params->ith, params->nth);
    parallel_for_ggml(params, n_blocks * rows, [&](int from, int to) {
        for (int i = from; i < to; ++i) {
            const int row = i / n_blocks, block = i % n_blocks;
            Format::quantize(x + size_t(row) * width + block * Format::WEIGHTS, blocks[block * rows + row]);
        }
    });
    ggml_barrier(params->threadpool);
    parallel_for_ggml(params, wanted.count, [&](int from, int to) {
        for (int first = 0; first < rows; first += ROWS_IN_CACHE) {
            const int end = std::min(rows, first + ROWS_IN_CACHE);
            for (int at = from; at < to; ++at) {
                const int i = wanted.run(at);
                const uint8_t * tile = weights + Format::TILE_BYTES * n_blocks * i;
                for (int row = first; row < end; row += ROWS_AT_ONCE) {
                    const int count = std::min(ROWS_AT_ONCE, end - row);
                    float * corner = out + size_t(row) * outputs + i * COLUMNS;
                    columns[count - 1](n_blocks, rows, blocks + row, tile, corner, outputs);
                }
            }
        }
    });
}

template <typename Format>
bool fits(const ggml_tensor * dst) {
    return localspec_rows_kernels() != nullptr && dst->ne[1] <= Format::MOST_ROWS;
}

// Calls `use` with the format of the weights, if this product is ours; whether it is.
template <typename Use>
bool ours(const ggml_tensor * dst, const Use & use) {
    switch (dst->src[0]->type) {
        case GGML_TYPE_Q4_0: return fits<Q4_0>(dst) && (use(Q4_0()), true);
        case GGML_TYPE_Q4_K: return fits<Q4_K>(dst) && (use(Q4_K()), true);
        case GGML_TYPE_Q6_K: return fits<Q6_K>(dst) && (use(Q6_K()), true);
        default: return false;
    }
}

}  // namespace

#if defined(__AMX_BF16__)
#include "bf16.h"
#endif

// Whether prompts may be products of tiles of bf16; from the next graph on they are, from so many rows on.
extern "C" __attribute__((visibility("default"))) bool localspec_rows_many(int rows) {
#if defined(__AMX_BF16__)
    many_rows() = rows;
    return true;
#else
    return false;
#endif
}

namespace {

#if !defined(__AMX_BF16__)
template <typename Use>
bool wide(ggml_tensor *, const Use &) { return false; }
#endif

// What llama.cpp's layout for AMX can hold and multiply right. Of weights that are a batch it has memory
// for one matrix, packs one, and reads the others where none are; so they stay plain. Rows may lie anywhere:
// rows.cpp gathers them, where llama.cpp's own answer would end the process (no backend can compute it).
class Taken : public ggml::cpu::extra_buffer_type {
    ggml::cpu::extra_buffer_type * stock_;

  public:
    explicit Taken(ggml::cpu::extra_buffer_type * stock) : stock_(stock) {}

    bool supports_op(ggml_backend_dev_t device, const ggml_tensor * op) override {
        if (op->op != GGML_OP_MUL_MAT || !one_matrix(op->src[0])) return false;
        if (!is_stacked(op)) return stock_->supports_op(device, op);
        Stacked stacked(op);
        stacked.lay_together();
        return stock_->supports_op(device, &stacked.op);
    }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        return stock_->get_tensor_traits(op);
    }
};

}  // namespace

ggml_backend_buffer_type_t ggml_backend_amx_buffer_type() {
    static const ggml_backend_buffer_type_t type = [] {
        ggml_backend_buffer_type_t found = ggml_backend_amx_buffer_type_stock();
        if (found) found->context = new Taken(static_cast<ggml::cpu::extra_buffer_type *>(found->context));
        return found;
    }();
    return type;
}

void ggml_backend_amx_mul_mat(const ggml_compute_params * params, ggml_tensor * dst) {
    GGML_ASSERT(dst->ne[2] * dst->ne[3] == 1 && ggml_is_contiguous(dst->src[1]));
    if (wide(dst, [&](const auto & product) { product.compute(params); })) return;
    if (!ours(dst, [&](auto format) { product<decltype(format)>(params, dst); })) {
        ggml_backend_amx_mul_mat_tiles(params, dst);
    }
}

size_t ggml_backend_amx_desired_wsize(const ggml_tensor * dst) {
    size_t size;
    if (wide(const_cast<ggml_tensor *>(dst), [&](const auto & product) { size = product.scratch_bytes(); })) return size;
    const bool is_ours = ours(dst, [&](auto format) {
        using Format = decltype(format);
        size = sizeof(typename Format::Block) * (dst->src[0]->ne[0] / Format::WEIGHTS) * dst->ne[1];
    });
    return is_ours ? size : ggml_backend_amx_desired_wsize_tiles(dst);
}

#endif
