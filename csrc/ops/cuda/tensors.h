// Checks of CUDA tensors, and how they are seen as rows. Messages name operator and argument.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../check.h"

namespace vcc::cuda {

// The suffix of the kernels for an activation.
inline const char* suffix_of(const Tensor& t, const char* op, const char* name) {
  switch (t.scalar_type()) {
    case ScalarType::BFloat16:
      return "bf16";
    case ScalarType::Half:
      return "fp16";
    case ScalarType::Float:
      return "fp32";
    default:
      break;
  }
  VCC_CHECK(false, op, ": ", name, " must be float32, bfloat16 or float16, it is ",
            torch::headeronly::toString(t.scalar_type()));
}

inline void check_place(const Tensor& t, const Tensor& like, const char* op, const char* name) {
  VCC_CHECK(t.is_cpu() == like.is_cpu() &&
                (t.is_cpu() || t.get_device_index() == like.get_device_index()),
            op, ": ", name, " is on another device than the first argument");
}

inline void check_dims(const Tensor& t, int64_t dims, const char* op, const char* name) {
  VCC_CHECK(t.dim() == dims, op, ": ", name, " must have ", dims, " dimensions, it has ", t.dim());
  VCC_CHECK(t.size(dims - 1) <= 1 || t.stride(dims - 1) == 1, op, ": ", name,
            " must be contiguous in its last dimension");
}

struct Rows {
  Tensor tensor;  // a copy where rows are not evenly apart
  int64_t count, width, stride;
};

// A tensor as rows of its last dimension, any number of dimensions before it.
inline Rows rows_of(const Tensor& t, const char* op, const char* name) {
  VCC_CHECK(t.dim() >= 1, op, ": ", name, " must have at least one dimension");
  const int64_t width = t.size(t.dim() - 1), count = width ? t.numel() / width : 0;
  const bool dense = width <= 1 || t.stride(t.dim() - 1) == 1;
  if (t.dim() == 2 && dense) return {t, count, width, t.stride(0)};
  return {t.is_contiguous() ? t : torch::stable::contiguous(t), count, width, width};
}

// An argument that kernels take without strides.
inline Tensor dense(const Tensor& t) {
  return t.is_contiguous() ? t : torch::stable::contiguous(t);
}

inline std::vector<int64_t> sizes_with(const Tensor& t, int64_t last) {
  std::vector<int64_t> sizes(t.sizes().begin(), t.sizes().end());
  sizes.back() = last;
  return sizes;
}

// Scales of quantised rows like t, `each` for a row; those of a block of all rows lie together.
inline Tensor new_scales(const Tensor& t, int64_t each) {
  std::vector<int64_t> sizes = sizes_with(t, each);
  if (each == 1) return torch::stable::new_empty(t, sizes, ScalarType::Float);
  std::rotate(sizes.begin(), sizes.end() - 1, sizes.end());
  Tensor scales = torch::stable::new_empty(t, sizes, ScalarType::Float);
  for (int64_t dim = 1; dim < t.dim(); ++dim) {
    scales = torch::stable::transpose(scales, dim - 1, dim);
  }
  return scales;
}

inline void check_scale(const Tensor& scale, const char* op) {
  VCC_CHECK(scale.scalar_type() == ScalarType::Float && scale.numel() == 1, op,
            ": scale must be one float32 number");
}

// Whether values share a scale by blocks of 128; else the row does.
inline bool by_blocks(int64_t block_size, int64_t width, const char* op) {
  if (block_size == 0 || block_size == width) return false;
  VCC_CHECK(block_size == 128 && width % 128 == 0, op, ": blocks of ", block_size, " of ", width,
            " values; CUDA kernels take 128 or the row");
  return true;
}

}  // namespace vcc::cuda
