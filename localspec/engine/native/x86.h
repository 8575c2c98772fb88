// Weights as llama.cpp keeps them on x86, multiplied by few rows.
//
// A weight is unpacked once, in registers, for up to 32 rows. Whole numbers are exact in any order. Floats
// are added in that of llama.cpp's one-row kernels, so that a row's numbers are the same bits for any
// number of rows, and the same as without this file; `chained.h` has an order of its own, for any rows.

#pragma once

#include "packed.h"
#include "plain.h"
#if defined(__AVX512VNNI__)
#include "chained.h"
#endif

namespace {

using OfPacked = Formats<PackedQ4_0, PackedQ4_K>;
#if defined(__AVX512VNNI__)
using OfPlain = Formats<PlainQ5_K, ChainedQ6_K, PlainQ8_0, PlainIQ4_XS>;
#else
using OfPlain = Formats<PlainQ5_K, PlainQ6_K, PlainQ8_0, PlainIQ4_XS>;
#endif

}  // namespace
