// vcc::silu_and_mul, vcc::gelu_and_mul.
#include <vector>

#include "gated.h"
#include "ops.h"

namespace vcc {
namespace {

Tensor gate(const Tensor& x, Activation act, const char* op) {
  const Gated gated = gated_of(x, act, op);
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() /= 2;
  const Tensor y = torch::stable::new_empty(x, sizes);
  const GatedArgs args = gated.into(y.mutable_data_ptr());
  for_rows(gated.rows.count, gated.rows.width,
           [&](int64_t begin, int64_t end) { gated.kernel()(args, begin, end); });
  return y;
}

}  // namespace

Tensor silu_and_mul(const Tensor& x) { return gate(x, kSilu, "silu_and_mul"); }

Tensor gelu_and_mul(const Tensor& x, bool tanh) {
  return gate(x, tanh ? kGeluTanh : kGelu, "gelu_and_mul");
}

}  // namespace vcc
