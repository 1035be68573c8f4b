// vcc::rotary_embedding.
#include "ops.h"
#include "rows.h"

namespace vcc {
namespace {

constexpr const char* kOp = "rotary_embedding";

void check_table(const Tensor& t, int64_t tokens, int64_t head_dim, const char* name) {
  check_layout(t, 2, kOp, name);
  check_type(t, ScalarType::Float, kOp, name);
  check_size(t, 0, tokens, kOp, name, "the tokens of q");
  VCC_CHECK(2 * t.size(1) <= head_dim, kOp, ": ", name, " rotates ", 2 * t.size(1),
            " values, more than head_dim ", head_dim);
}

Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t head_dim,
              const char* name) {
  check_layout(x, 2, kOp, name);
  const Dtype dtype = dtype_of(x, kOp, name);
  VCC_CHECK(x.size(1) % head_dim == 0, kOp, ": ", name, " has ", x.size(1),
            " columns, no multiple of head_dim ", head_dim);
  const Tensor y = torch::stable::new_empty(x, x.sizes());
  const RotaryArgs args{x.const_data_ptr(),
                        y.mutable_data_ptr(),
                        static_cast<const float*>(cos.const_data_ptr()),
                        static_cast<const float*>(sin.const_data_ptr()),
                        x.size(1) / head_dim,
                        head_dim,
                        cos.size(1),
                        x.stride(0),
                        cos.stride(0),
                        sin.stride(0)};
  for_rows(x.size(0), x.size(1),
           [&](int64_t begin, int64_t end) { kernels().rotary[dtype](args, begin, end); });
  return y;
}

}  // namespace

std::tuple<Tensor, Tensor> rotary_embedding(const Tensor& q, const Tensor& k, const Tensor& cos,
                                            const Tensor& sin, int64_t head_dim) {
  VCC_CHECK(head_dim > 0, kOp, ": head_dim must be positive, it is ", head_dim);
  check_layout(q, 2, kOp, "q");
  check_table(cos, q.size(0), head_dim, "cos");
  check_table(sin, q.size(0), head_dim, "sin");
  check_size(sin, 1, cos.size(1), kOp, "sin", "the columns of cos");
  check_size(k, 0, q.size(0), kOp, "k", "the tokens of q");
  return {rotate(q, cos, sin, head_dim, "q"), rotate(k, cos, sin, head_dim, "k")};
}

}  // namespace vcc
