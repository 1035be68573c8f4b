// Gated activations on CUDA tensors, alone and quantised.
#include <optional>

#include "ops.h"
#include "shape.h"
#include "tensors.h"

namespace vcc::cuda {
namespace {

struct Gate {
  const char* op;
  const Tensor& x;
  std::optional<bool> tanh = std::nullopt;
  const Tensor* scale = nullptr;
};

struct Half {
  Rows x;
  int64_t width, item;
  const char* suffix;
};

Half half_of(const Gate& g) {
  const char* suffix = suffix_of(g.x, g.op, "x");
  const Rows x = rows_of(g.x, g.op, "x");
  VCC_CHECK(x.width % 2 == 0, g.op, ": the last dimension of x must be even, it is ", x.width);
  return {x, x.width / 2, static_cast<int64_t>(g.x.element_size()), suffix};
}

Tensor run(const Gate& g) {
  const Half half = half_of(g);
  if (g.scale != nullptr) check_scale(*g.scale, g.op), check_place(*g.scale, g.x, g.op, "scale");
  const PartShape shape = part_shape(half.width, half.item);
  const auto sizes = sizes_with(g.x, half.width);
  const Tensor out = g.scale != nullptr
                         ? torch::stable::new_empty(g.x, sizes, ScalarType::Float8_e4m3fn)
                         : torch::stable::new_empty(g.x, sizes);
  Launch launch(g.op);
  launch.tensor(half.x.tensor);
  if (g.scale != nullptr) launch.tensor(*g.scale);
  launch.tensor(out)
      .i32(half.x.count)
      .i32(half.width)
      .i32(shape.row_blocks(half.x.count))
      .i64(half.x.stride);
  if (g.tanh) launch.i32(*g.tanh);
  launch.run(std::string("vcc_") + g.op + "_" + half.suffix, shape.blocks(half.x.count),
             static_cast<int>(shape.threads), g.x);
  return out;
}

std::tuple<Tensor, Tensor> run_dynamic(const Gate& g, const char* base, int64_t block_size,
                                       double least) {
  const Half half = half_of(g);
  const bool blocks = by_blocks(block_size, half.width, g.op);
  VCC_CHECK(blocks || half.width <= kMostWidth, g.op, ": rows have ", half.width,
            " values; kernels take ", kMostWidth, " at most");
  const Tensor out =
      torch::stable::new_empty(g.x, sizes_with(g.x, half.width), ScalarType::Float8_e4m3fn);
  const int64_t each = block_size != 0 ? half.width / block_size : 1;
  const Tensor scales = new_scales(g.x, each);
  const RowShape rows = row_shape(half.width, half.item, true);
  const PartShape parts = part_shape(half.width, half.item);
  Launch launch(g.op);
  launch.tensor(half.x.tensor).tensor(out).tensor(scales).i32(half.x.count).i32(half.width);
  launch.i32(blocks ? parts.row_blocks(half.x.count) : rows.row_threads)
      .i64(half.x.stride)
      .f32(least);
  if (g.tanh) launch.i32(*g.tanh);
  const char* form = blocks ? "_block_" : rows.wide ? "_row_wide_" : "_row_";
  launch.run(std::string("vcc_") + base + form + half.suffix,
             blocks ? parts.blocks(half.x.count) : rows.blocks(half.x.count),
             static_cast<int>(blocks ? parts.threads : rows.threads), g.x);
  return {out, scales};
}

}  // namespace

Tensor silu_and_mul(const Tensor& x) { return run({"silu_and_mul", x}); }

Tensor gelu_and_mul(const Tensor& x, bool tanh) { return run({"gelu_and_mul", x, tanh}); }

Tensor silu_and_mul_quant(const Tensor& x, const Tensor& scale) {
  return run({"silu_and_mul_quant", x, std::nullopt, &scale});
}

Tensor gelu_and_mul_quant(const Tensor& x, const Tensor& scale, bool tanh) {
  return run({"gelu_and_mul_quant", x, tanh, &scale});
}

std::tuple<Tensor, Tensor> silu_and_mul_quant_dynamic(const Tensor& x, int64_t block_size,
                                                      double least) {
  return run_dynamic({"silu_and_mul_quant_dynamic", x}, "silu_and_mul_quant", block_size, least);
}

std::tuple<Tensor, Tensor> gelu_and_mul_quant_dynamic(const Tensor& x, bool tanh,
                                                      int64_t block_size, double least) {
  return run_dynamic({"gelu_and_mul_quant_dynamic", x, tanh}, "gelu_and_mul_quant", block_size,
                     least);
}

}  // namespace vcc::cuda
