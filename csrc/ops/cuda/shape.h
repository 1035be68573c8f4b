// How many threads a row gets: the same rules as engine/ops/cuda/rows.py, which a test compares.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace vcc::cuda {

constexpr int64_t kMostWidth = 16384, kNarrow = 8192;
constexpr int64_t kWarp = 32, kChunk = 16, kSmallBlock = 256;
constexpr int64_t kKept = 4, kKeptOfWideGates = 8, kTogether = 2;  // chunks of a thread
constexpr int64_t kFewBlocks = 256;  // more blocks take a row as long as there are no more

inline int64_t ceildiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t warps(int64_t threads) { return ceildiv(threads, kWarp) * kWarp; }
inline int64_t chunks_of(int64_t width, int64_t item) { return ceildiv(width * item, kChunk); }
// How many rows are few, where so many blocks then take one.
inline int64_t most_few(int64_t blocks) { return kFewBlocks / blocks; }
inline int64_t power_of_two(int64_t value) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(value, 1))));
}

struct RowShape {
  bool wide;
  int64_t row_threads, threads;
  int64_t blocks(int64_t rows) const { return ceildiv(rows, threads / row_threads); }
};

inline RowShape row_shape(int64_t width, int64_t item, bool gated = false) {
  const int64_t chunks = chunks_of(width, item);
  const bool wide = width > kNarrow;
  if (chunks <= kWarp * kKept) {
    return {wide, std::min(kWarp, power_of_two(chunks)), kSmallBlock};
  }
  const int64_t threads = warps(ceildiv(chunks, gated && wide ? kKeptOfWideGates : kKept));
  return {wide, threads, threads};
}

// The launch of parts of rows: blocks of a row where there are few rows, and where there are many.
struct PartShape {
  int64_t few, many, threads;
  int64_t row_blocks(int64_t rows) const { return rows <= most_few(few) ? few : many; }
  int64_t blocks(int64_t rows) const { return row_blocks(rows) * rows; }
};

inline PartShape part_shape(int64_t width, int64_t item) {
  const int64_t chunks = std::max<int64_t>(1, chunks_of(width, item));
  const int64_t many = ceildiv(chunks, kTogether * kSmallBlock);
  const int64_t threads = warps(ceildiv(chunks, kTogether * many));
  return {ceildiv(chunks, threads), many, threads};
}

}  // namespace vcc::cuda
