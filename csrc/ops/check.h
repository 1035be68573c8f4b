// Argument checks of the operators: each message names the operator and the argument.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include "cpu/kernels.h"

namespace vcc {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

#define VCC_CHECK(condition, ...) STD_TORCH_CHECK(condition, "vcc::", __VA_ARGS__)

// The index of the kernel for an activation tensor.
inline Dtype dtype_of(const Tensor& t, const char* op, const char* name) {
  const ScalarType type = t.scalar_type();
  VCC_CHECK(type == ScalarType::Float || type == ScalarType::BFloat16, op, ": ", name,
            " must be float32 or bfloat16, it is ", torch::headeronly::toString(type));
  return type == ScalarType::Float ? kFloat32 : kBFloat16;
}

inline void check_same_dtype(const Tensor& t, const Tensor& like, const char* op, const char* name,
                             const char* like_name) {
  VCC_CHECK(t.scalar_type() == like.scalar_type(), op, ": ", name, " must have the dtype of ",
            like_name, " (", torch::headeronly::toString(like.scalar_type()), "), it is ",
            torch::headeronly::toString(t.scalar_type()));
}

inline void check_type(const Tensor& t, ScalarType type, const char* op, const char* name) {
  VCC_CHECK(t.scalar_type() == type, op, ": ", name, " must be ", torch::headeronly::toString(type),
            ", it is ", torch::headeronly::toString(t.scalar_type()));
}

// A CPU tensor of `dims` dimensions whose last one is dense.
inline void check_layout(const Tensor& t, int64_t dims, const char* op, const char* name) {
  VCC_CHECK(t.is_cpu(), op, ": ", name, " must be on the CPU");
  VCC_CHECK(t.dim() == dims, op, ": ", name, " must have ", dims, " dimensions, it has ", t.dim());
  const int64_t last = dims - 1;
  VCC_CHECK(t.size(last) <= 1 || t.stride(last) == 1, op, ": ", name,
            " must be contiguous in its last dimension, its stride there is ", t.stride(last));
}

inline void check_size(const Tensor& t, int64_t dim, int64_t size, const char* op, const char* name,
                       const char* meaning) {
  VCC_CHECK(t.size(dim) == size, op, ": ", name, " must have size ", size, " in dimension ", dim,
            " (", meaning, "), it has ", t.size(dim));
}

// An int32 vector of `size` elements.
inline const int32_t* indices(const Tensor& t, int64_t size, const char* op, const char* name,
                              const char* meaning) {
  check_layout(t, 1, op, name);
  check_type(t, ScalarType::Int, op, name);
  check_size(t, 0, size, op, name, meaning);
  return static_cast<const int32_t*>(t.const_data_ptr());
}

}  // namespace vcc
