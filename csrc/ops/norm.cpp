// vcc::rms_norm and vcc::fused_add_rms_norm.
#include "norm_args.h"
#include "ops.h"

namespace vcc {
namespace {

void run(const NormArgs& args, Dtype dtype, int64_t rows) {
  for_rows(rows, args.dim,
           [&](int64_t begin, int64_t end) { kernels().norm[dtype](args, begin, end); });
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, double weight_offset) {
  const char* op = "rms_norm";
  const Dtype dtype = dtype_of(x, op, "x");
  const Rows rows = rows_of(x, op, "x");
  NormArgs args = norm_args(rows, weight, eps, weight_offset, op);
  const Tensor y = torch::stable::new_empty(x, x.sizes());
  args.y = y.mutable_data_ptr();
  run(args, dtype, rows.count);
  return y;
}

std::tuple<Tensor, Tensor> fused_add_rms_norm(const Tensor& x, const Tensor& residual,
                                              const Tensor& weight, double eps,
                                              double weight_offset) {
  const char* op = "fused_add_rms_norm";
  const Dtype dtype = dtype_of(x, op, "x");
  const Rows rows = rows_of(x, op, "x"), others = residual_rows(x, residual, op);
  NormArgs args = norm_args(rows, weight, eps, weight_offset, op);
  const Tensor y = torch::stable::new_empty(x, x.sizes());
  const Tensor sum = torch::stable::new_empty(x, x.sizes());
  args.y = y.mutable_data_ptr();
  add_residual(args, others, sum);
  run(args, dtype, rows.count);
  return {y, sum};
}

}  // namespace vcc
