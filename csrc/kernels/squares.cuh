// Sums of squares of 16-bit numbers by the matrix unit, which takes them as they are: an
// instruction for two numbers of each thread in place of four.
#pragma once

#include "rows.cuh"

namespace vcc {

#ifndef VCC_KERNEL_HOST

// sum += A * B. Thread t of a warp gives A two numbers of row t / 4, `low`, and two of row 8 + t /
// 4, `high`; and B two of column t / 4. It holds columns 2 * (t % 4) and the next of both rows.
#define VCC_MULTIPLY(type)                                       \
  asm("mma.sync.aligned.m16n8k8.row.col.f32." type "." type      \
      ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])   \
      : "r"(low), "r"(high), "r"(column))
__device__ inline void multiply(bf16, float (&sum)[4], uint32_t low, uint32_t high,
                                uint32_t column) {
  VCC_MULTIPLY("bf16");
}
__device__ inline void multiply(fp16, float (&sum)[4], uint32_t low, uint32_t high,
                                uint32_t column) {
  VCC_MULTIPLY("f16");
}
#undef VCC_MULTIPLY

// The sum of all squares of a warp's chunks, in its first lane: all of its threads call this.
// Squares of even words are on the diagonal of the upper rows, of odd ones on that of the lower,
// in lanes 0, 4, 9, 13, 18, 22, 27 and 31: three exchanges add them.
template <int kCount, class T>
__device__ inline float warp_squares(T type, const Chunk (&part)[kCount]) {
  float even[4] = {}, odd[4] = {};
#pragma unroll
  for (const Chunk& chunk : part) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      multiply(type, even, chunk.word[i], chunk.word[i + 1], chunk.word[i]);
      multiply(type, odd, chunk.word[i], chunk.word[i + 1], chunk.word[i + 1]);
    }
  }
  const int row = threadIdx.x % kWarp / 4, column = threadIdx.x % 4 * 2;
  const float left = even[0] + odd[2], right = even[1] + odd[3];
  float sum = row == column ? left : row == column + 1 ? right : 0.0f;
#pragma unroll
  for (const int apart : {4, 9, 18}) sum += __shfl_xor_sync(kAll, sum, apart);
  return sum;
}

#endif

}  // namespace vcc
