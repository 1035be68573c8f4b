// Chunks of keys and values on their way into the paged cache, which holds them or fp8 of them.
#pragma once

#include "quant.cuh"

namespace vcc {

// Scales of keys and of values of an fp8 cache; ones where there are none.
struct CacheScales {
  float key, value;

  __device__ explicit CacheScales(const float* scales)
      : key(scales == nullptr ? 1.0f : read_value(scales)),
        value(scales == nullptr ? 1.0f : read_value(scales + 1)) {}
};

// Whether slots of C begin where a chunk of T can be stored at once.
template <class T, class C>
__device__ inline bool slots_aligned(const C* cache, int64_t plane, int64_t block, int64_t slot) {
  constexpr int kWidth = kValues<T>;
  return is_aligned(cache, kWidth * sizeof(C)) && plane % kWidth == 0 && block % kWidth == 0 &&
         slot % kWidth == 0;
}

template <bool kAligned, class T>
__device__ inline void store_cached(T* to, const Chunk& chunk, float, int left) {
  store<kAligned>(to, chunk, left);
}

template <bool kAligned, class T>
__device__ inline void store_cached(fp8* to, const Chunk& chunk, float scale, int left) {
  store_quantised<kAligned, T>(to, chunk, Divider(scale), left);
}

}  // namespace vcc
