// Single instructions of the device that round less well than C++'s functions.
#pragma once

#include "types.cuh"

namespace vcc {

// 1 / x to one unit of the last place; what is below 2^-126 counts as zero, before and after.
__device__ inline float near_reciprocal(float x) {
#ifdef VCC_KERNEL_HOST
  return 1.0f / x;
#else
  float value;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
#endif
}

// 2^x to two units of the last place; what is below 2^-126 is zero.
__device__ inline float near_exp2(float x) {
#ifdef VCC_KERNEL_HOST
  return exp2f(x);
#else
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
#endif
}

}  // namespace vcc
