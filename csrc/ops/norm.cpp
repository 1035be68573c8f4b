// vcc::rms_norm and vcc::fused_add_rms_norm.
#include "ops.h"
#include "rows.h"

namespace vcc {
namespace {

NormArgs norm_args(const Rows& x, const Tensor& weight, double eps, double offset, const char* op) {
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
  check_same_dtype(residual, x, op, "residual", "x");
  VCC_CHECK(residual.sizes().equals(x.sizes()), op, ": residual must have the shape of x");
  const Rows rows = rows_of(x, op, "x"), others = rows_of(residual, op, "residual");
  NormArgs args = norm_args(rows, weight, eps, weight_offset, op);
  const Tensor y = torch::stable::new_empty(x, x.sizes());
  const Tensor sum = torch::stable::new_empty(x, x.sizes());
  args.y = y.mutable_data_ptr(), args.sum = sum.mutable_data_ptr();
  args.residual = others.data(), args.residual_stride = others.stride;
  run(args, dtype, rows.count);
  return {y, sum};
}

}  // namespace vcc
