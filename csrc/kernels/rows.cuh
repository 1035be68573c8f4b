// Which row a thread works on, and sums and maxima over the threads of a row.
//
// A row has `row_threads` threads: a power of two up to 32, with several rows in a block, or a
// multiple of 32, which is the block. Where a thread keeps its chunks of a row, those of a warp lie
// together and its own are 32 chunks apart, a distance that the compiler knows.
#pragma once

#include "access.cuh"

namespace vcc {

constexpr int kWarp = 32;
constexpr uint32_t kAll = 0xffffffff;
constexpr int kFewRows = 128;  // up to so many, a launch takes as long as one of its threads

struct Place {
  int64_t row;
  int thread;  // of the row
  bool there;  // a block's last rows may not be
};

__device__ inline Place place_of(int rows, int row_threads) {
  if (row_threads > kWarp) return {blockIdx.x, static_cast<int>(threadIdx.x), true};
  const int each = blockDim.x / row_threads, own = threadIdx.x / row_threads;
  const int64_t row = int64_t{blockIdx.x} * each + own;
  return {row, static_cast<int>(threadIdx.x) % row_threads, row < rows};
}

// The first of the chunks that a thread keeps; of a row for part of a warp it keeps no other.
template <int kCount>
__device__ inline int first_chunk(int thread) {
  return thread / kWarp * (kWarp * kCount) + thread % kWarp;
}

struct Sum {
  static constexpr float kNothing = 0.0f;
  __device__ static float join(float a, float b) { return a + b; }
};
struct Most {  // of magnitudes
  static constexpr float kNothing = 0.0f;
  __device__ static float join(float a, float b) { return larger(a, b); }
};

// Over `lanes` (a power of two) neighbours of a warp; each of them gets the result.
template <class Join>
__device__ inline float over_lanes(float value, int lanes) {
  for (int apart = lanes / 2; apart > 0; apart /= 2) {
    value = Join::join(value, __shfl_xor_sync(kAll, value, apart));
  }
  return value;
}

// The largest of numbers that are not negative, or NaN, over a warp.
__device__ inline float most_over_warp(float value) {
#ifdef VCC_KERNEL_HOST
  return over_lanes<Most>(value, kWarp);
#else
  return as_float(__reduce_max_sync(kAll, as_bits(value)));  // bits have the order of the numbers
#endif
}

// Over the warps of a row, of which the first lanes have each warp's share; every thread gets the
// result. At most once a kernel for each Join.
template <class Join>
__device__ inline float over_warps(float share, int row_threads) {
  alignas(sizeof(Chunk)) __shared__ float shares[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = row_threads / kWarp;
  // Those of warps that are not there are nothing.
  if (lane == 0 || (warp == 0 && lane >= warps)) {
    shares[warp + lane] = lane == 0 ? share : Join::kNothing;
  }
  __syncthreads();
  constexpr int kEach = sizeof(Chunk) / sizeof(float), kFew = 8;
  if (warps > kFew) return over_lanes<Join>(shares[lane], kWarp);
  const auto* all = reinterpret_cast<const Chunk*>(shares);
  const auto joined = [](const Chunk& four) {
    return Join::join(Join::join(as_float(four.word[0]), as_float(four.word[1])),
                      Join::join(as_float(four.word[2]), as_float(four.word[3])));
  };
  const float found = joined(all[0]);
  return warps > kEach ? Join::join(found, joined(all[1])) : found;
}

// Over the threads of a row; each of them gets the result. At most once a kernel for each Join.
template <class Join>
__device__ inline float over_row(float value, int row_threads) {
  if (row_threads <= kWarp) return over_lanes<Join>(value, row_threads);
  return over_warps<Join>(over_lanes<Join>(value, kWarp), row_threads);
}

// The same of the largest of numbers that are not negative.
__device__ inline float most_over_row(float value, int row_threads) {
  if (row_threads < kWarp) return over_lanes<Most>(value, row_threads);
  const float share = most_over_warp(value);
  return row_threads == kWarp ? share : over_warps<Most>(share, row_threads);
}

}  // namespace vcc
