// Quantised results: where they go, and the last step of an operator that makes rows.
#pragma once

#include <vector>

#include "work.h"

namespace vcc {

constexpr ScalarType kFp8 = ScalarType::Float8_e4m3fn;

struct Quantised {
  Tensor values, scales;
  QuantArgs args{};
};

// One given scale for all values.
inline const float* scale_of(const Tensor& scale, const char* op, const char* name) {
  VCC_CHECK(scale.is_cpu(), op, ": ", name, " must be on the CPU");
  check_type(scale, ScalarType::Float, op, name);
  VCC_CHECK(scale.numel() == 1, op, ": ", name, " must be one number, it has ", scale.numel());
  return static_cast<const float*>(scale.const_data_ptr());
}

// Room for rows of `width` values in the place of the last dimension of `like`.
inline Quantised quantised_like(const Tensor& like, int64_t width) {
  std::vector<int64_t> sizes(like.sizes().begin(), like.sizes().end());
  sizes.back() = width;
  Quantised out{torch::stable::new_empty(like, sizes, kFp8), {}, {}};
  out.args.q = static_cast<uint8_t*>(out.values.mutable_data_ptr());
  out.args.dim = out.args.block = width;
  return out;
}

// The same, and room for a scale of each block of `block` values; 0 is the whole row.
inline Quantised quantised_like(const Tensor& like, int64_t width, int64_t block, double least,
                                const char* op) {
  VCC_CHECK(block >= 0 && (block == 0 || width % block == 0), op, ": block_size must divide the ",
            width, " values of a row, it is ", block);
  VCC_CHECK(width > 0, op, ": rows of no values have no scale");
  Quantised out = quantised_like(like, width);
  if (block) out.args.block = block;
  std::vector<int64_t> sizes(like.sizes().begin(), like.sizes().end());
  sizes.back() = width / out.args.block;
  out.scales = torch::stable::new_empty(like, sizes, ScalarType::Float);
  out.args.scales = static_cast<float*>(out.scales.mutable_data_ptr());
  out.args.least = static_cast<float>(least);
  return out;
}

// Make each row by `make(row, scratch)` in memory that stays in the cache, then quantise it.
template <class F>
void for_quantised_rows(const QuantArgs& out, int64_t count, int64_t work, Dtype dtype,
                        const F& make) {
  for_rows(count, work, [&](int64_t begin, int64_t end) {
    thread_local Scratch own;
    void* scratch = own.floats(out.dim);
    for (int64_t row = begin; row < end; ++row) {
      make(row, scratch);
      QuantArgs args = out;
      args.x = scratch, args.q += row * out.dim;
      if (!args.scale) args.scales += row * (out.dim / out.block);
      kernels().quantise[dtype](args, 0, 1);
    }
  });
}

}  // namespace vcc
