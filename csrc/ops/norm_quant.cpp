// vcc::rms_norm_quant and its relatives: the norm of a row, rounded, goes to float8_e4m3fn at once.
#include "norm_args.h"
#include "ops.h"
#include "quant.h"

namespace vcc {
namespace {

// Kernels take a row by its pointers; y is the scratch row.
NormArgs row_of(const NormArgs& all, int64_t row, void* y, int64_t item) {
  NormArgs args = all;
  const auto at = [&](const void* base, int64_t stride) {
    return static_cast<const char*>(base) + row * stride * item;
  };
  args.x = at(all.x, all.x_stride), args.y = y;
  if (all.residual) {
    args.residual = at(all.residual, all.residual_stride);
    args.sum = const_cast<char*>(at(all.sum, all.dim));
  }
  return args;
}

void run(const NormArgs& norm, const QuantArgs& out, const Rows& rows, Dtype dtype) {
  const int64_t item = static_cast<int64_t>(rows.tensor.element_size());
  for_quantised_rows(out, rows.count, rows.width, dtype, [&](int64_t row, void* scratch) {
    kernels().norm[dtype](row_of(norm, row, scratch, item), 0, 1);
  });
}

}  // namespace

Tensor rms_norm_quant(const Tensor& x, const Tensor& weight, const Tensor& scale, double eps,
                      double weight_offset) {
  const char* op = "rms_norm_quant";
  const Dtype dtype = dtype_of(x, op, "x");
  const Rows rows = rows_of(x, op, "x");
  const NormArgs args = norm_args(rows, weight, eps, weight_offset, op);
  Quantised out = quantised_like(x, rows.width);
  out.args.scale = scale_of(scale, op, "scale");
  run(args, out.args, rows, dtype);
  return out.values;
}

std::tuple<Tensor, Tensor> rms_norm_quant_dynamic(const Tensor& x, const Tensor& weight, double eps,
                                                  double weight_offset, int64_t block_size,
                                                  double least) {
  const char* op = "rms_norm_quant_dynamic";
  const Dtype dtype = dtype_of(x, op, "x");
  const Rows rows = rows_of(x, op, "x");
  const NormArgs args = norm_args(rows, weight, eps, weight_offset, op);
  const Quantised out = quantised_like(x, rows.width, block_size, least, op);
  run(args, out.args, rows, dtype);
  return {out.values, out.scales};
}

std::tuple<Tensor, Tensor> fused_add_rms_norm_quant(const Tensor& x, const Tensor& residual,
                                                    const Tensor& weight, const Tensor& scale,
                                                    double eps, double weight_offset) {
  const char* op = "fused_add_rms_norm_quant";
  const Dtype dtype = dtype_of(x, op, "x");
  const Rows rows = rows_of(x, op, "x"), others = residual_rows(x, residual, op);
  NormArgs args = norm_args(rows, weight, eps, weight_offset, op);
  const Tensor sum = torch::stable::new_empty(x, x.sizes());
  add_residual(args, others, sum);
  Quantised out = quantised_like(x, rows.width);
  out.args.scale = scale_of(scale, op, "scale");
  run(args, out.args, rows, dtype);
  return {out.values, sum};
}

std::tuple<Tensor, Tensor, Tensor> fused_add_rms_norm_quant_dynamic(
    const Tensor& x, const Tensor& residual, const Tensor& weight, double eps, double weight_offset,
    int64_t block_size, double least) {
  const char* op = "fused_add_rms_norm_quant_dynamic";
  const Dtype dtype = dtype_of(x, op, "x");
  const Rows rows = rows_of(x, op, "x"), others = residual_rows(x, residual, op);
  NormArgs args = norm_args(rows, weight, eps, weight_offset, op);
  const Tensor sum = torch::stable::new_empty(x, x.sizes());
  add_residual(args, others, sum);
  const Quantised out = quantised_like(x, rows.width, block_size, least, op);
  run(args, out.args, rows, dtype);
  return {out.values, out.scales, sum};
}

}  // namespace vcc
