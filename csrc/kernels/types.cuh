// Element types of the kernels, and 16 bytes of them as a thread holds them.
//
// Own types and not those of the toolkit's headers: the same sources are compiled for the host by a
// test, which defines VCC_KERNEL_HOST and brings the words of CUDA with it.
#pragma once

#include <stdint.h>

#ifdef VCC_KERNEL_HOST
#include "shim.h"
#endif

namespace vcc {

struct bf16 {
  uint16_t bits;
};
struct fp16 {
  uint16_t bits;
};
struct fp8 {  // float8_e4m3fn: no infinities, 448 is the largest
  uint8_t bits;
};

struct alignas(16) Chunk {  // 16 bytes: what one access moves
  uint32_t word[4];
};

template <class T>
constexpr int kValues = sizeof(Chunk) / sizeof(T);  // of a chunk

__device__ inline float as_float(uint32_t bits) { return __uint_as_float(bits); }
__device__ inline uint32_t as_bits(float value) { return __float_as_uint(value); }

__device__ inline float wide(bf16 x) { return as_float(uint32_t{x.bits} << 16); }
__device__ inline float wide(float x) { return x; }
__device__ inline float wide(fp16 x) {
#ifdef VCC_KERNEL_HOST
  return host::half_to_float(x.bits);
#else
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
#endif
}

// Two values rounded to nearest even, the first one in the low half.
__device__ inline uint32_t packed(bf16, float low, float high) {
#ifdef VCC_KERNEL_HOST
  return host::float_to_bf16(low) | uint32_t{host::float_to_bf16(high)} << 16;
#else
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#endif
}

__device__ inline uint32_t packed(fp16, float low, float high) {
#ifdef VCC_KERNEL_HOST
  return host::float_to_half(low) | uint32_t{host::float_to_half(high)} << 16;
#else
  uint32_t both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#endif
}

// One value, rounded to nearest even.
template <class T>
__device__ inline T narrow(float value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else {
    return T{static_cast<uint16_t>(packed(T{}, value, 0.0f))};
  }
}

// e4m3 of a number, as torch converts, except that what is too large becomes the largest. NaN
// stays NaN. In integers, for architectures whose instructions lack it.
__device__ inline uint32_t fp8_in_integers(float value) {
  const uint32_t all = as_bits(value), sign = all >> 24 & 0x80;
  const uint32_t size = all & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7f;
  if (size >= 0x43e00000) return sign | 0x7e;  // 448
  // Below 2^-6 values are multiples of 2^-9, which is what a float of 2^14 has as its last place.
  if (size < 0x3c800000) return sign | (as_bits(as_float(size) + 16384.0f) - 0x46800000);
  return sign | (size - (120u << 23) + 0x7ffff + (size >> 20 & 1)) >> 20;
}

__device__ inline uint32_t packed(fp8, float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t both;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
  return both;
#else
  return fp8_in_integers(low) | fp8_in_integers(high) << 8;
#endif
}

// Four, the first one lowest.
__device__ inline uint32_t packed_four(const float* values) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t all;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;"
      " cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high}; }"
      : "=r"(all)
      : "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]));
  return all;
#else
  return packed(fp8{}, values[0], values[1]) | packed(fp8{}, values[2], values[3]) << 16;
#endif
}

// The values of a chunk in fp32.
__device__ inline void unpack(bf16, const Chunk& chunk, float (&values)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = as_float(chunk.word[i] << 16);
    values[2 * i + 1] = as_float(chunk.word[i] & 0xffff0000);
  }
}

__device__ inline void unpack(fp16, const Chunk& chunk, float (&values)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = wide(fp16{static_cast<uint16_t>(chunk.word[i])});
    values[2 * i + 1] = wide(fp16{static_cast<uint16_t>(chunk.word[i] >> 16)});
  }
}

__device__ inline void unpack(float, const Chunk& chunk, float (&values)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) values[i] = as_float(chunk.word[i]);
}

// The other way: each value is rounded once.
template <class T>
__device__ inline void pack(T type, const float (&values)[kValues<T>], Chunk& chunk) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      chunk.word[i] = as_bits(values[i]);
    } else {
      chunk.word[i] = packed(type, values[2 * i], values[2 * i + 1]);
    }
  }
}

// Keeps a chunk as it is: without this the compiler would rather keep the values in fp32, which
// take twice the registers, and fewer rows would be under way.
__device__ inline void keep_packed([[maybe_unused]] Chunk& chunk) {
#ifndef VCC_KERNEL_HOST
  asm volatile(""
               : "+r"(chunk.word[0]), "+r"(chunk.word[1]), "+r"(chunk.word[2]),
                 "+r"(chunk.word[3]));
#endif
}

// The larger of two; NaN if one of them is.
__device__ inline float larger(float a, float b) {
#ifdef VCC_KERNEL_HOST
  return a != a || b != b ? as_float(0x7fffffff) : a > b ? a : b;
#else
  float value;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(value) : "f"(a), "f"(b));
  return value;
#endif
}

// The larger of a magnitude and that of another number, in words of one or two each; NaN if one is.
// The result's sign has no meaning.
__device__ inline uint32_t larger_magnitude(float, uint32_t a, uint32_t b) {
  return as_bits(larger(fabsf(as_float(a)), fabsf(as_float(b))));
}

#ifdef VCC_KERNEL_HOST
template <class T>
uint32_t larger_magnitude(T type, uint32_t a, uint32_t b) {
  const auto half = [&](int by) {
    const T left{static_cast<uint16_t>(a >> by)}, right{static_cast<uint16_t>(b >> by)};
    return larger(fabsf(wide(left)), fabsf(wide(right)));
  };
  return packed(type, half(0), half(16));
}
#else
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 860
#define VCC_LARGER_MAGNITUDE(type) "max.NaN.xorsign.abs." type " %0, %1, %2;"
#else
#define VCC_LARGER_MAGNITUDE(type) \
  "{ .reg .b32 b; abs." type " b, %2; max.NaN." type " %0, %1, b; }"
#endif
__device__ inline uint32_t larger_magnitude(bf16, uint32_t a, uint32_t b) {
  uint32_t both;
  asm(VCC_LARGER_MAGNITUDE("bf16x2") : "=r"(both) : "r"(a), "r"(b));
  return both;
}
__device__ inline uint32_t larger_magnitude(fp16, uint32_t a, uint32_t b) {
  uint32_t both;
  asm(VCC_LARGER_MAGNITUDE("f16x2") : "=r"(both) : "r"(a), "r"(b));
  return both;
}
#undef VCC_LARGER_MAGNITUDE
#endif

}  // namespace vcc
