// A chunk of a norm: its squares, and its product with a factor and a weight.
#pragma once

#include "access.cuh"

namespace vcc {

template <class T>
__device__ inline float squares(const Chunk& chunk) {
  float values[kValues<T>], sum = 0.0f;
  unpack(T{}, chunk, values);
#pragma unroll
  for (const float value : values) sum += value * value;
  return sum;
}

template <class T>
__device__ inline Chunk scaled(const Chunk& x, const Chunk& weight, float factor, float offset) {
  float values[kValues<T>], gain[kValues<T>];
  unpack(T{}, x, values);
  unpack(T{}, weight, gain);
  if (offset != 0.0f) {  // the same for all threads
#pragma unroll
    for (float& value : gain) value += offset;
  }
#pragma unroll
  for (int i = 0; i < kValues<T>; ++i) values[i] = values[i] * factor * gain[i];
  Chunk result;
  pack(T{}, values, result);
  return result;
}

}  // namespace vcc
