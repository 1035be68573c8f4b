// The arguments of a rotation, checked.
#pragma once

#include "rows.h"

namespace vcc {

// Tables of cosines and sines [tokens, half], fp32.
struct Angles {
  const float *cos, *sin;
  int64_t half, cos_stride, sin_stride;
};

inline Angles angles_of(const Tensor& cos, const Tensor& sin, int64_t tokens, int64_t head_dim,
                        const char* op) {
  VCC_CHECK(head_dim > 0, op, ": head_dim must be positive, it is ", head_dim);
  const auto check = [&](const Tensor& t, const char* name) {
    check_layout(t, 2, op, name);
    check_type(t, ScalarType::Float, op, name);
    check_size(t, 0, tokens, op, name, "the tokens of q");
    VCC_CHECK(2 * t.size(1) <= head_dim, op, ": ", name, " rotates ", 2 * t.size(1),
              " values, more than head_dim ", head_dim);
  };
  check(cos, "cos"), check(sin, "sin");
  check_size(sin, 1, cos.size(1), op, "sin", "the columns of cos");
  return {static_cast<const float*>(cos.const_data_ptr()),
          static_cast<const float*>(sin.const_data_ptr()), cos.size(1), cos.stride(0),
          sin.stride(0)};
}

// Rows of heads [tokens, heads * head_dim], with any row stride.
inline int64_t heads_of(const Tensor& x, int64_t head_dim, const char* op, const char* name) {
  check_layout(x, 2, op, name);
  VCC_CHECK(x.size(1) % head_dim == 0, op, ": ", name, " has ", x.size(1),
            " columns, no multiple of head_dim ", head_dim);
  return x.size(1) / head_dim;
}

// One row, from x to y, at the angles of `row`.
inline void rotate_row(const void* x, void* y, int64_t heads, int64_t head_dim,
                       const Angles& angles, int64_t row, Dtype dtype) {
  const RotaryArgs args{x,
                        y,
                        angles.cos + row * angles.cos_stride,
                        angles.sin + row * angles.sin_stride,
                        heads,
                        head_dim,
                        angles.half,
                        0,
                        0,
                        0};
  kernels().rotary[dtype](args, 0, 1);
}

}  // namespace vcc
