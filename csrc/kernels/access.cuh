// Reading and writing chunks: 16 bytes at once where everything is aligned, else value by value.
//
// `left` is how many values there are from the chunk's first one on; it may be zero or negative.
// What is not there reads as zero and is not written. Where kAligned, rows are whole chunks.
#pragma once

#include "types.cuh"

namespace vcc {

constexpr Chunk kZeros{};

__device__ inline bool is_aligned(const void* pointer, uint64_t bytes = 16) {
  return reinterpret_cast<uint64_t>(pointer) % bytes == 0;
}

// Whether rows that are `stride` values apart, the first at `pointer`, begin at whole chunks.
template <class T>
__device__ inline bool rows_aligned(const T* pointer, int64_t stride) {
  return is_aligned(pointer) && stride % kValues<T> == 0;
}

// Bits below a chunk's size, which are set where something is not made of whole chunks: those of
// many things are asked at once.
__device__ inline uint32_t place_bits(const void* pointer) {
  return static_cast<uint32_t>(reinterpret_cast<uint64_t>(pointer));
}
template <class T>
__device__ inline uint32_t row_bits(int64_t values) {
  return static_cast<uint32_t>(values) * sizeof(T);
}

// Through the read-only path; what is used once leaves the first cache to the others.
__device__ inline Chunk read_chunk(const void* from) {
#ifdef VCC_KERNEL_HOST
  return host::read(static_cast<const Chunk*>(from));
#else
  Chunk chunk;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(chunk.word[0]), "=r"(chunk.word[1]), "=r"(chunk.word[2]), "=r"(chunk.word[3])
               : "l"(from));
  return chunk;
#endif
}

__device__ inline Chunk read_chunk_once(const void* from) {
#ifdef VCC_KERNEL_HOST
  return host::read(static_cast<const Chunk*>(from));
#else
  Chunk chunk;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(chunk.word[0]), "=r"(chunk.word[1]), "=r"(chunk.word[2]), "=r"(chunk.word[3])
               : "l"(from));
  return chunk;
#endif
}

template <class T>
__device__ inline T read_value(const T* from) {
#ifdef VCC_KERNEL_HOST
  return host::read(from);
#else
  return *from;
#endif
}

template <class T>
__device__ inline void write_value(T* to, T value) {
#ifdef VCC_KERNEL_HOST
  host::write(to, value);
#else
  *to = value;
#endif
}

__device__ inline uint32_t bits_of(bf16 x) { return x.bits; }
__device__ inline uint32_t bits_of(fp16 x) { return x.bits; }
__device__ inline uint32_t bits_of(float x) { return as_bits(x); }

template <class T>
__device__ inline T value_of(uint32_t bits) {
  if constexpr (sizeof(T) == 4) {
    return as_float(bits);
  } else {
    return T{static_cast<uint16_t>(bits)};
  }
}

template <bool kAligned, bool kOnce, class T>
__device__ inline Chunk load(const T* from, int left) {
  Chunk chunk = kZeros;
  if constexpr (kAligned) {
    if (left > 0) chunk = kOnce ? read_chunk_once(from) : read_chunk(from);
  } else {
#pragma unroll
    for (int i = 0; i < kValues<T>; ++i) {
      constexpr int kEach = kValues<T> / 4;
      if (i < left) {
        chunk.word[i / kEach] |= bits_of(read_value(from + i)) << (i % kEach * 16);
      }
    }
  }
  return chunk;
}

template <bool kAligned, class T>
__device__ inline void store(T* to, const Chunk& chunk, int left) {
  if constexpr (kAligned) {
    if (left > 0) write_value(reinterpret_cast<Chunk*>(to), chunk);
  } else {
#pragma unroll
    for (int i = 0; i < kValues<T>; ++i) {
      constexpr int kEach = kValues<T> / 4;
      if (i < left) write_value(to + i, value_of<T>(chunk.word[i / kEach] >> (i % kEach * 16)));
    }
  }
}

// kCount numbers as fp8.
template <bool kAligned, int kCount>
__device__ inline void store_fp8(fp8* to, const float (&values)[kCount], int left) {
  uint32_t word[kCount / 4];
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i) word[i] = packed_four(values + 4 * i);
  if constexpr (kAligned) {
    if (left <= 0) return;
    if constexpr (kCount == 8) {
      write_value(reinterpret_cast<uint2*>(to), make_uint2(word[0], word[1]));
    } else {
      write_value(reinterpret_cast<uint32_t*>(to), word[0]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < left) write_value(to + i, fp8{static_cast<uint8_t>(word[i / 4] >> (i % 4 * 8))});
    }
  }
}

// kCount fp32 numbers, such as cosines.
template <bool kAligned, int kCount>
__device__ inline void load_numbers(const float* from, float (&values)[kCount], int left) {
#pragma unroll
  for (int at = 0; at < kCount; at += 4) {
    const Chunk chunk = load<kAligned, false>(from + at, left - at);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[at + i] = as_float(chunk.word[i]);
  }
}

}  // namespace vcc
