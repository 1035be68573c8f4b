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

template <bool kAligned, class T>
__device__ inline void store_cached(T* to, const Chunk& chunk, float, int left) {
  store<kAligned>(to, chunk, left);
}

template <bool kAligned, class T>
__device__ inline void store_cached(fp8* to, const Chunk& chunk, float scale, int left) {
  store_quantised<kAligned, T>(to, chunk, Divider(scale), left);
}

// One value, rounded to T before.
template <class T>
__device__ inline void store_cached(T* to, float value, float) {
  write_value(to, narrow<T>(value));
}

template <class T>
__device__ inline void store_cached(fp8* to, float value, float scale) {
  float quotient[1] = {wide(narrow<T>(value))};
  Divider(scale).all<T>(quotient);
  write_value(to, fp8{static_cast<uint8_t>(packed(fp8{}, quotient[0], 0.0f))});
}

}  // namespace vcc
