// Quantisation to float8_e4m3fn: x / scale in fp32, clamped to +-448, rounded to nearest even.
#pragma once

#include "rows.cuh"

namespace vcc {

enum class Quant { kNone, kStatic, kRow, kBlock };

constexpr float kLargest = 448.0f;
constexpr int kBlockValues = 128;  // that share a scale

// Divides by one scale. The quotient is rounded as a division's: a product by the reciprocal is
// corrected by its remainder, which costs three instructions and not ten.
struct Divider {
  float scale, reciprocal;
  bool plain;  // the reciprocal or a remainder would leave the range of fp32

  __device__ explicit Divider(float by) : scale(by), reciprocal(1.0f / by) {
    const float size = fabsf(by);
    plain = !(size > 0x1p-100f && size < 0x1p100f);
  }

  __device__ float operator()(float x) const {
    if (plain) return x / scale;
    const float first = x * reciprocal;
    const float better = fmaf(fmaf(-first, scale, x), reciprocal, first);
    return fabsf(better) <= 0x1p126f ? better : first;  // infinities and NaN
  }
};

template <bool kAligned, class T>
__device__ inline void store_quantised(fp8* to, const Chunk& chunk, const Divider& divide,
                                       int left) {
  float values[kValues<T>];
  unpack(T{}, chunk, values);
#pragma unroll
  for (float& value : values) value = divide(value);
  store_fp8<kAligned>(to, values, left);
}

// The largest magnitude of a chunk; NaN if there is one.
template <class T>
__device__ inline float most_of(const Chunk& chunk) {
  float values[kValues<T>], most = 0.0f;
  unpack(T{}, chunk, values);
#pragma unroll
  for (const float value : values) most = larger(most, fabsf(value));
  return most;
}

__device__ inline float scale_of(float most, float least) { return larger(most, least) / kLargest; }

// A chunk of a row in blocks of 128 values, which lie in neighbouring lanes: all of them call this.
template <bool kAligned, class T>
__device__ inline void store_block(fp8* row, float* scales, const Chunk& chunk, int at, int left,
                                   float least) {
  constexpr int kLanes = kBlockValues / kValues<T>;
  const float scale = scale_of(over_lanes<Most>(most_of<T>(chunk), kLanes), least);
  store_quantised<kAligned, T>(row + at, chunk, Divider(scale), left);
  if (left > 0 && at % kBlockValues == 0) write_value(scales + at / kBlockValues, scale);
}

}  // namespace vcc
