// Norms on CUDA tensors, alone and quantised.
#include <optional>

#include "ops.h"
#include "shape.h"
#include "tensors.h"

namespace vcc::cuda {
namespace {

constexpr int64_t kGiven = -1;  // block size where the scale is an argument, or there is none

struct Norm {
  const char* op;
  const Tensor& x;
  const Tensor* residual;
  const Tensor& weight;
  const Tensor* scale;
  double eps, offset;
  int64_t block_size = kGiven;
  double least = 0;
};

struct Results {
  Tensor out, scales, total;
};

void check(const Norm& n, const Rows& x) {
  check_place(n.weight, n.x, n.op, "weight");
  check_same_dtype(n.weight, n.x, n.op, "weight", "x");
  check_dims(n.weight, 1, n.op, "weight");
  check_size(n.weight, 0, x.width, n.op, "weight", "the last dimension of x");
  VCC_CHECK(x.width <= kMostWidth, n.op, ": rows have ", x.width, " values; kernels take ",
            kMostWidth, " at most");
  if (n.scale != nullptr) check_scale(*n.scale, n.op), check_place(*n.scale, n.x, n.op, "scale");
  if (n.residual == nullptr) return;
  check_place(*n.residual, n.x, n.op, "residual");
  check_same_dtype(*n.residual, n.x, n.op, "residual", "x");
  VCC_CHECK(n.residual->sizes().equals(n.x.sizes()), n.op, ": residual must have the shape of x");
}

Results run(const Norm& n) {
  const char* suffix = suffix_of(n.x, n.op, "x");
  const Rows x = rows_of(n.x, n.op, "x");
  check(n, x);
  const Tensor weight = dense(n.weight);
  const bool dynamic = n.block_size != kGiven, quantised = dynamic || n.scale != nullptr;
  const bool blocks = dynamic && by_blocks(n.block_size, x.width, n.op);
  const RowShape shape = row_shape(x.width, static_cast<int64_t>(n.x.element_size()));
  Results made;
  std::string symbol = std::string("vcc_") + n.op;
  if (dynamic) {
    symbol.replace(symbol.rfind("_dynamic"), std::string::npos, blocks ? "_block" : "_row");
  }
  symbol += std::string(shape.wide ? "_wide_" : "_") + suffix;
  Launch launch(n.op);
  launch.tensor(x.tensor);
  std::optional<Rows> residual;
  if (n.residual != nullptr) {
    residual = rows_of(*n.residual, n.op, "residual");
    launch.tensor(residual->tensor);
  }
  launch.tensor(weight);
  if (n.scale != nullptr) launch.tensor(*n.scale);
  made.out = quantised ? torch::stable::new_empty(n.x, n.x.sizes(), ScalarType::Float8_e4m3fn)
                       : torch::stable::new_empty(n.x, n.x.sizes());
  launch.tensor(made.out);
  if (dynamic) {
    const int64_t each = n.block_size != 0 ? x.width / n.block_size : 1;
    made.scales = new_scales(n.x, each);
    launch.tensor(made.scales);
  }
  if (residual) {
    made.total = torch::stable::new_empty(n.x, n.x.sizes());
    launch.tensor(made.total);
  }
  launch.i32(x.count).i32(x.width).i32(shape.row_threads).i64(x.stride);
  if (residual) launch.i64(residual->stride);
  launch.f32(n.eps).f32(n.offset);
  if (dynamic) launch.f32(n.least);
  launch.run(symbol, shape.blocks(x.count), static_cast<int>(shape.threads), n.x);
  return made;
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, double weight_offset) {
  return run({"rms_norm", x, nullptr, weight, nullptr, eps, weight_offset}).out;
}

std::tuple<Tensor, Tensor> fused_add_rms_norm(const Tensor& x, const Tensor& residual,
                                              const Tensor& weight, double eps,
                                              double weight_offset) {
  const Results made =
      run({"fused_add_rms_norm", x, &residual, weight, nullptr, eps, weight_offset});
  return {made.out, made.total};
}

Tensor rms_norm_quant(const Tensor& x, const Tensor& weight, const Tensor& scale, double eps,
                      double weight_offset) {
  return run({"rms_norm_quant", x, nullptr, weight, &scale, eps, weight_offset}).out;
}

std::tuple<Tensor, Tensor> fused_add_rms_norm_quant(const Tensor& x, const Tensor& residual,
                                                    const Tensor& weight, const Tensor& scale,
                                                    double eps, double weight_offset) {
  const Results made =
      run({"fused_add_rms_norm_quant", x, &residual, weight, &scale, eps, weight_offset});
  return {made.out, made.total};
}

std::tuple<Tensor, Tensor> rms_norm_quant_dynamic(const Tensor& x, const Tensor& weight, double eps,
                                                  double weight_offset, int64_t block_size,
                                                  double least) {
  const Results made = run({"rms_norm_quant_dynamic", x, nullptr, weight, nullptr, eps,
                            weight_offset, block_size, least});
  return {made.out, made.scales};
}

std::tuple<Tensor, Tensor, Tensor> fused_add_rms_norm_quant_dynamic(
    const Tensor& x, const Tensor& residual, const Tensor& weight, double eps, double weight_offset,
    int64_t block_size, double least) {
  const Results made = run({"fused_add_rms_norm_quant_dynamic", x, &residual, weight, nullptr, eps,
                            weight_offset, block_size, least});
  return {made.out, made.scales, made.total};
}

}  // namespace vcc::cuda
