// vcc::qk_norm_rope: the norm of each head goes into a scratch row, the rotation reads it there.
#include "norm_args.h"
#include "ops.h"
#include "rotary_args.h"
#include "work.h"

namespace vcc {
namespace {

constexpr const char* kOp = "qk_norm_rope";

struct Norm {
  const Tensor& weight;
  double eps, offset;
};

Tensor norm_and_rotate(const Tensor& x, const Norm& norm, const Angles& angles, int64_t head_dim,
                       const char* name) {
  const Dtype dtype = dtype_of(x, kOp, name);
  const int64_t heads = heads_of(x, head_dim, kOp, name);
  const Tensor y = torch::stable::new_empty(x, x.sizes());
  const NormArgs all =
      norm_args({x, heads, head_dim, head_dim}, norm.weight, norm.eps, norm.offset, kOp);
  const int64_t item = static_cast<int64_t>(x.element_size());
  for_rows(x.size(0), x.size(1), [&](int64_t begin, int64_t end) {
    thread_local Scratch own;
    NormArgs args = all;
    args.y = own.floats(x.size(1));
    for (int64_t row = begin; row < end; ++row) {
      args.x = static_cast<const char*>(x.const_data_ptr()) + row * x.stride(0) * item;
      kernels().norm[dtype](args, 0, heads);
      void* to = static_cast<char*>(y.mutable_data_ptr()) + row * x.size(1) * item;
      rotate_row(args.y, to, heads, head_dim, angles, row, dtype);
    }
  });
  return y;
}

}  // namespace

std::tuple<Tensor, Tensor> qk_norm_rope(const Tensor& q, const Tensor& k, const Tensor& q_weight,
                                        const Tensor& k_weight, const Tensor& cos,
                                        const Tensor& sin, int64_t head_dim, double eps,
                                        double weight_offset) {
  check_layout(q, 2, kOp, "q");
  const Angles angles = angles_of(cos, sin, q.size(0), head_dim, kOp);
  check_layout(k, 2, kOp, "k");
  check_size(k, 0, q.size(0), kOp, "k", "the tokens of q");
  return {norm_and_rotate(q, {q_weight, eps, weight_offset}, angles, head_dim, "q"),
          norm_and_rotate(k, {k_weight, eps, weight_offset}, angles, head_dim, "k")};
}

}  // namespace vcc
