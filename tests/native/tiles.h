// The tile instructions of AMX as plain C++, for processors that have none: `make isa` compiles ggml's
// CPU library with this in front of every file, so that its kernels for AMX, and ours, run anywhere that
// has the other instructions they use (AVX-512 with VNNI).
//
// What each instruction does: Intel's "Intrinsics Guide", family AMX. A tile has up to 16 rows of up to 64
// bytes; the configuration says how many of each, at offsets 16 (bytes of a row, 16 bits each) and 48 (rows).
// Every thread has its own. What is not configured, or is larger than it can be, ends the process.

#pragma once

#if defined(__cplusplus) && defined(__x86_64__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulated_tiles {

struct Tile {
    uint8_t rows[16][64];
};

struct State {
    bool configured;
    uint8_t palette, count[8];
    uint16_t bytes[8];
    Tile tiles[8];
};

inline thread_local State state{};

inline void expect(bool holds, const char * what) {
    if (holds) return;
    std::fprintf(stderr, "AMX: %s\n", what);
    std::abort();
}

inline void load_configuration(const void * from) {
    const auto * at = static_cast<const uint8_t *>(from);
    state = {};
    state.palette = at[0];
    if (state.palette == 0) return;
    expect(state.palette == 1, "a palette that there is not");
    std::memcpy(state.bytes, at + 16, sizeof state.bytes);
    std::memcpy(state.count, at + 48, sizeof state.count);
    for (int tile = 0; tile < 8; ++tile) expect(state.count[tile] <= 16 && state.bytes[tile] <= 64, "a tile too large");
    state.configured = true;
}

// What `load_configuration` was given, or zeros.
inline void store_configuration(void * to) {
    auto * at = static_cast<uint8_t *>(to);
    std::memset(at, 0, 64);
    if (!state.configured) return;
    at[0] = state.palette;
    std::memcpy(at + 16, state.bytes, sizeof state.bytes);
    std::memcpy(at + 48, state.count, sizeof state.count);
}

inline Tile & used(int tile) {
    expect(state.configured, "tiles before their configuration");
    expect(state.count[tile] > 0 && state.bytes[tile] > 0, "a tile of no size");
    return state.tiles[tile];
}

inline void zero(int tile) { std::memset(&used(tile), 0, sizeof(Tile)); }

inline void load(int tile, const void * base, int64_t stride) {
    Tile & into = used(tile);
    zero(tile);
    for (int row = 0; row < state.count[tile]; ++row) {
        std::memcpy(into.rows[row], static_cast<const uint8_t *>(base) + row * stride, state.bytes[tile]);
    }
}

inline void store(int tile, void * base, int64_t stride) {
    const Tile & from = used(tile);
    for (int row = 0; row < state.count[tile]; ++row) {
        std::memcpy(static_cast<uint8_t *>(base) + row * stride, from.rows[row], state.bytes[tile]);
    }
}

// Sums of four products of bytes each: of A's rows with B's columns, whose fours lie side by side.
template <typename A, typename B>
void multiply(int sums, int left, int right) {
    Tile & into = used(sums);
    const Tile &a = used(left), &b = used(right);
    const int fours = state.bytes[left] / 4, columns = state.bytes[sums] / 4;
    expect(state.count[sums] == state.count[left] && fours == state.count[right], "tiles that do not fit");
    expect(state.bytes[sums] == state.bytes[right], "tiles that do not fit");
    for (int row = 0; row < state.count[sums]; ++row) {
        auto * out = reinterpret_cast<int32_t *>(into.rows[row]);
        const auto * x = reinterpret_cast<const A *>(a.rows[row]);
        for (int four = 0; four < fours; ++four) {
            const auto * y = reinterpret_cast<const B *>(b.rows[four]);
            for (int column = 0; column < columns; ++column) {
                int32_t sum = 0;
                for (int i = 0; i < 4; ++i) sum += int32_t(x[4 * four + i]) * int32_t(y[4 * column + i]);
                out[column] = int32_t(uint32_t(out[column]) + uint32_t(sum));
            }
        }
    }
}

inline float of_half(uint16_t half) {
    const uint32_t bits = (half & 0x7f80) ? uint32_t(half) << 16 : uint32_t(half & 0x8000) << 16;  // denormals are zeros
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Sums of products of pairs of bf16: of a row the first of all pairs, and the second, and then both.
inline void multiply_halves(int sums, int left, int right) {
    Tile & into = used(sums);
    const Tile &a = used(left), &b = used(right);
    const int pairs = state.bytes[left] / 4, columns = state.bytes[sums] / 4;
    expect(state.count[sums] == state.count[left] && pairs == state.count[right], "tiles that do not fit");
    expect(state.bytes[sums] == state.bytes[right], "tiles that do not fit");
    for (int row = 0; row < state.count[sums]; ++row) {
        auto * out = reinterpret_cast<float *>(into.rows[row]);
        const auto * x = reinterpret_cast<const uint16_t *>(a.rows[row]);
        for (int column = 0; column < columns; ++column) {
            float both[2] = {0, 0};
            for (int pair = 0; pair < pairs; ++pair) {
                const auto * y = reinterpret_cast<const uint16_t *>(b.rows[pair]) + 2 * column;
                for (int i = 0; i < 2; ++i) both[i] = std::fma(of_half(x[2 * pair + i]), of_half(y[i]), both[i]);
            }
            out[column] += both[0] + both[1];
        }
    }
}

// The kernel is asked for tiles before their first use, and here it need not know.
template <typename... All>
long permission(long number, All... arguments) {
    return number == SYS_arch_prctl ? 0 : ::syscall(number, arguments...);
}

}  // namespace emulated_tiles

#undef _tile_loadconfig
#undef _tile_storeconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_release
#undef _tile_dpbssd
#undef _tile_dpbsud
#undef _tile_dpbusd
#undef _tile_dpbuud
#undef _tile_dpbf16ps
#define _tile_loadconfig(from) emulated_tiles::load_configuration(from)
#define _tile_storeconfig(to) emulated_tiles::store_configuration(to)
#define _tile_loadd(tile, base, stride) emulated_tiles::load(tile, base, stride)
#define _tile_stored(tile, base, stride) emulated_tiles::store(tile, base, stride)
#define _tile_zero(tile) emulated_tiles::zero(tile)
#define _tile_release() (emulated_tiles::state = {})
#define _tile_dpbssd(sums, a, b) (emulated_tiles::multiply<int8_t, int8_t>(sums, a, b))
#define _tile_dpbsud(sums, a, b) (emulated_tiles::multiply<int8_t, uint8_t>(sums, a, b))
#define _tile_dpbusd(sums, a, b) (emulated_tiles::multiply<uint8_t, int8_t>(sums, a, b))
#define _tile_dpbuud(sums, a, b) (emulated_tiles::multiply<uint8_t, uint8_t>(sums, a, b))
#define _tile_dpbf16ps(sums, a, b) (emulated_tiles::multiply_halves(sums, a, b))
#define syscall(...) emulated_tiles::permission(__VA_ARGS__)

#endif
