// Packs weights in Q4_0 and Q4_K at the speed of memory, to the bytes that llama.cpp packs where there is AVX2.
//
// A tile has eight outputs, which take turns of eight bytes (packed.h). llama.cpp's own code copies every block
// three times and scales byte by byte (make_block_q4_Kx8 in ggml-cpu/repack.cpp), and that was a third of a load.
// Everything else stays with it: other types and processors, what is not a whole tensor, and all of it where
// our kernels are not in use. Moves of eight bytes suffice: wider ones wait for memory just as long.
//
// rows.cmake compiles this into ggml's CPU library, where llama.cpp's own function of this name gets the
// suffix _stock.

#include "ggml-backend-impl.h"
#include "repack.h"

ggml_backend_buffer_type_t ggml_backend_cpu_repack_buffer_type_stock();

#if defined(__AVX2__)

#include <immintrin.h>

#include <atomic>
#include <cstring>

// The kernels in use, or nothing (rows.cpp).
extern "C" const char * localspec_rows_kernels();

namespace {

constexpr int OUTPUTS = 8;

constexpr uint64_t each(uint8_t byte) { return byte * 0x0101010101010101; }

// Eight bytes of each block in turn, with some bits flipped.
template <typename Block>
void take_turns(const Block * const (&blocks)[OUTPUTS], uint64_t flipped, void * to) {
    auto * out = static_cast<uint8_t *>(to);
    for (size_t at = 0; at < sizeof(Block::qs); at += sizeof(uint64_t)) {
        for (const Block * block : blocks) {
            uint64_t turn;
            std::memcpy(&turn, block->qs + at, sizeof turn);
            turn ^= flipped;
            std::memcpy(out, &turn, sizeof turn);
            out += sizeof turn;
        }
    }
}

struct Q4_0 {
    static constexpr ggml_type TYPE = GGML_TYPE_Q4_0;
    using Block = block_q4_0;
    using Tile = block_q4_0x8;

    static void pack(const Block * const (&blocks)[OUTPUTS], Tile & tile) {
        for (int i = 0; i < OUTPUTS; ++i) tile.d[i] = blocks[i]->d;
        take_turns(blocks, each(0x88), tile.qs);  // signed in tiles
    }
};

struct Q4_K {
    static constexpr ggml_type TYPE = GGML_TYPE_Q4_K;
    using Block = block_q4_K;
    using Tile = block_q4_Kx8;
    static constexpr int HEAD = 16;  // d, dmin and scales
    static_assert(offsetof(Block, scales) == 4 && offsetof(Block, qs) == HEAD);

    static void pack(const Block * const (&blocks)[OUTPUTS], Tile & tile) {
        for (int i = 0; i < OUTPUTS; ++i) {
            std::memcpy(&tile.d[i], blocks[i], sizeof tile.d[i]);
            std::memcpy(&tile.dmin[i], reinterpret_cast<const uint8_t *>(blocks[i]) + 2, sizeof tile.dmin[i]);
        }
        // A block has 6 bits of scale and of minimum for each of eight groups, in 12 bytes. A tile has 12 such
        // bytes for each group, with those of eight outputs.
        uint64_t columns[HEAD];
        turn(blocks, columns);
        for (int group = 0; group < 4; ++group) {
            const uint64_t scales = columns[4 + group], minima = columns[8 + group], low = columns[12 + group];
            put(scales & each(63), minima & each(63), tile.scales + 12 * group);
            put((scales >> 2 & each(0x30)) | (low & each(15)), (minima >> 2 & each(0x30)) | (low >> 4 & each(15)),
                tile.scales + 12 * (group + 4));
        }
        take_turns(blocks, 0, tile.qs);
    }

    // Each byte of the blocks' heads, of all blocks. Three times each vector of the first half is mixed with
    // its like in the second, by which the three bits of a block's number move behind those of the byte's.
    static void turn(const Block * const (&blocks)[OUTPUTS], uint64_t (&columns)[HEAD]) {
        __m128i heads[OUTPUTS], mixed[OUTPUTS];
        for (int i = 0; i < OUTPUTS; ++i) heads[i] = _mm_loadu_si128(reinterpret_cast<const __m128i *>(blocks[i]));
        for (int time = 0; time < 3; ++time) {
            for (int i = 0; i < 4; ++i) {
                mixed[2 * i] = _mm_unpacklo_epi8(heads[i], heads[i + 4]);
                mixed[2 * i + 1] = _mm_unpackhi_epi8(heads[i], heads[i + 4]);
            }
            std::memcpy(heads, mixed, sizeof heads);
        }
        std::memcpy(columns, heads, sizeof columns);
    }

    // Eight scales and minima in 12 bytes: of the first four 6 bits, with two bits of the others above them;
    // then what is left of the others.
    static void put(uint64_t scales, uint64_t minima, uint8_t * to) {
        const uint64_t more_scales = scales >> 32, more_minima = minima >> 32;
        const uint32_t words[3] = {
            uint32_t(scales | (more_scales & each(0x30)) << 2),
            uint32_t(minima | (more_minima & each(0x30)) << 2),
            uint32_t((more_scales & each(15)) | (more_minima & each(15)) << 4),
        };
        std::memcpy(to, words, sizeof words);
    }
};

// A whole tensor. Experts lie one behind the other, and none shares a tile with another.
template <typename Format>
void pack(const ggml_tensor * tensor, const void * data) {
    using Block = typename Format::Block;
    const int64_t width = tensor->ne[0] / ggml_blck_size(Format::TYPE);
    const auto * from = static_cast<const Block *>(data);
    auto * tile = static_cast<typename Format::Tile *>(tensor->data);
    for (int64_t rows = ggml_nrows(tensor); rows > 0; rows -= OUTPUTS, from += OUTPUTS * width) {
        for (int64_t x = 0; x < width; ++x, ++tile) {
            // As much of the next eight outputs, which lies together: eight streams are too many for a core's own
            // prefetcher.
            const auto * ahead = reinterpret_cast<const char *>(from + OUTPUTS * (width + x));
            for (size_t at = 0; at < sizeof *tile; at += 64) _mm_prefetch(ahead + at, _MM_HINT_T1);
            const Block * blocks[OUTPUTS];
            for (int i = 0; i < OUTPUTS; ++i) blocks[i] = from + i * width + x;
            Format::pack(blocks, *tile);
        }
    }
}

template <typename Format>
bool packed(const ggml_tensor * tensor, const void * data) {
    return tensor->type == Format::TYPE && (pack<Format>(tensor, data), true);
}

decltype(ggml_backend_buffer_type_i::alloc_buffer) stock_alloc;
std::atomic<decltype(ggml_backend_buffer_i::set_tensor)> stock_set;

void set_tensor(ggml_backend_buffer_t buffer, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    const bool whole = offset == 0 && size == ggml_nbytes(tensor) && ggml_is_contiguous(tensor);
    const bool tiles = tensor->ne[1] % OUTPUTS == 0 && localspec_rows_kernels();
    if (whole && tiles && (packed<Q4_K>(tensor, data) || packed<Q4_0>(tensor, data))) return;
    stock_set.load()(buffer, tensor, data, offset, size);
}

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = stock_alloc(type, size);
    if (!buffer) return nullptr;
    stock_set = buffer->iface.set_tensor;
    buffer->iface.set_tensor = set_tensor;
    return buffer;
}

}  // namespace

ggml_backend_buffer_type_t ggml_backend_cpu_repack_buffer_type() {
    static const ggml_backend_buffer_type_t type = [] {
        ggml_backend_buffer_type_t found = ggml_backend_cpu_repack_buffer_type_stock();
        stock_alloc = found->iface.alloc_buffer;
        found->iface.alloc_buffer = alloc_buffer;
        return found;
    }();
    return type;
}

#else

ggml_backend_buffer_type_t ggml_backend_cpu_repack_buffer_type() {
    return ggml_backend_cpu_repack_buffer_type_stock();
}

#endif
