// vcc::silu_and_mul_quant, vcc::gelu_and_mul_quant and their dynamic forms.
#include "gated.h"
#include "ops.h"
#include "quant.h"

namespace vcc {
namespace {

void run(const Gated& gated, const QuantArgs& out) {
  const int64_t item = static_cast<int64_t>(gated.rows.tensor.element_size());
  for_quantised_rows(out, gated.rows.count, gated.rows.width, gated.dtype,
                     [&](int64_t row, void* scratch) {
                       GatedArgs args = gated.into(scratch);
                       args.x = static_cast<const char*>(args.x) + row * args.x_stride * item;
                       gated.kernel()(args, 0, 1);
                     });
}

Tensor fixed(const Tensor& x, const Tensor& scale, Activation act, const char* op) {
  const Gated gated = gated_of(x, act, op);
  Quantised out = quantised_like(x, gated.width());
  out.args.scale = scale_of(scale, op, "scale");
  run(gated, out.args);
  return out.values;
}

std::tuple<Tensor, Tensor> dynamic(const Tensor& x, Activation act, int64_t block_size,
                                   double least, const char* op) {
  const Gated gated = gated_of(x, act, op);
  const Quantised out = quantised_like(x, gated.width(), block_size, least, op);
  run(gated, out.args);
  return {out.values, out.scales};
}

Activation gelu(bool tanh) { return tanh ? kGeluTanh : kGelu; }

}  // namespace

Tensor silu_and_mul_quant(const Tensor& x, const Tensor& scale) {
  return fixed(x, scale, kSilu, "silu_and_mul_quant");
}

std::tuple<Tensor, Tensor> silu_and_mul_quant_dynamic(const Tensor& x, int64_t block_size,
                                                      double least) {
  return dynamic(x, kSilu, block_size, least, "silu_and_mul_quant_dynamic");
}

Tensor gelu_and_mul_quant(const Tensor& x, const Tensor& scale, bool tanh) {
  return fixed(x, scale, gelu(tanh), "gelu_and_mul_quant");
}

std::tuple<Tensor, Tensor> gelu_and_mul_quant_dynamic(const Tensor& x, bool tanh,
                                                      int64_t block_size, double least) {
  return dynamic(x, gelu(tanh), block_size, least, "gelu_and_mul_quant_dynamic");
}

}  // namespace vcc
