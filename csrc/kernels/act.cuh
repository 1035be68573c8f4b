// Activations of gates in fp32: as exact as C++'s functions where the result stays fp32 (kExact),
// else to a few units of fp32, which the rounding to 16 bits does not see.
#pragma once

#include "fast.cuh"

namespace vcc {

constexpr float kLog2E = 1.4426950408889634f;

// x / (1 + 2^power), NaN where the division has it. Both terms are 2^-24 of themselves, so that
// the reciprocal of a large sum stays in the range of fp32 for all results that are not zero.
__device__ inline float x_by_one_and_exp2(float x, float power) {
  const float sum = 0x1p-24f + near_exp2(power - 24.0f);
  return x * (near_reciprocal(sum) * 0x1p-24f);
}

struct Silu {
  template <bool kExact>
  __device__ float at(float x) const {
    if constexpr (kExact) return x / (1.0f + expf(-x));
    return x_by_one_and_exp2(x, -kLog2E * x);
  }
};

// By the hyperbolic tangent: 1 + tanh(y) is 2 / (1 + exp(-2 y)).
struct GeluTanh {
  template <bool kExact>
  __device__ float at(float x) const {
    constexpr float kLinear = 0.79788456080286536f, kCubic = 0.044715f;
    if constexpr (kExact) {
      return x / (1.0f + expf(-2.0f * kLinear * (x + kCubic * x * x * x)));
    }
    const float slope = fmaf(-2.0f * kLog2E * kLinear * kCubic, x * x, -2.0f * kLog2E * kLinear);
    return x_by_one_and_exp2(x, slope * x);
  }
};

// By the error function, else by Abramowitz and Stegun 7.1.26: the share of a normal distribution
// beyond |x| is exp(-x^2 / 2) times a polynomial of 1 / (1 + p |x| / sqrt(2)), to 1e-7.
struct GeluErf {
  template <bool kExact>
  __device__ float at(float x) const {
    constexpr float kRoot = 0.70710678118654752f;  // of 1 / 2
    if constexpr (kExact) return 0.5f * x * (1.0f + erff(x * kRoot));
    const float t = near_reciprocal(fmaf(0.3275911f * kRoot, fabsf(x), 1.0f));
    float sum = fmaf(0.5f * 1.061405429f, t, 0.5f * -1.453152027f);
    sum = fmaf(sum, t, 0.5f * 1.421413741f);
    sum = fmaf(sum, t, 0.5f * -0.284496736f);
    sum = fmaf(sum, t, 0.5f * 0.254829592f) * t;
    const float beyond = sum * near_exp2(-0.5f * kLog2E * x * x);
    return x * (x > 0.0f ? 1.0f - beyond : beyond);
  }
};

}  // namespace vcc
