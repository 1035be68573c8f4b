// The arguments of an RMS norm, checked.
#pragma once

#include "rows.h"

namespace vcc {

inline NormArgs norm_args(const Rows& x, const Tensor& weight, double eps, double offset,
                          const char* op) {
  check_layout(weight, 1, op, "weight");
  check_same_dtype(weight, x.tensor, op, "weight", "x");
  check_size(weight, 0, x.width, op, "weight", "the last dimension of x");
  NormArgs args{};
  args.x = x.data();
  args.weight = weight.const_data_ptr();
  args.dim = x.width, args.x_stride = x.stride;
  args.eps = static_cast<float>(eps), args.offset = static_cast<float>(offset);
  return args;
}

// The residual that is added first, and where the sum goes.
inline void add_residual(NormArgs& args, const Rows& residual, const Tensor& sum) {
  args.residual = residual.data(), args.residual_stride = residual.stride;
  args.sum = sum.mutable_data_ptr();
}

inline Rows residual_rows(const Tensor& x, const Tensor& residual, const char* op) {
  check_same_dtype(residual, x, op, "residual", "x");
  VCC_CHECK(residual.sizes().equals(x.sizes()), op, ": residual must have the shape of x");
  return rows_of(residual, op, "residual");
}

}  // namespace vcc
