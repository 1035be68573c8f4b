// vcc::rotary_embedding.
#include "ops.h"
#include "rotary_args.h"

namespace vcc {
namespace {

constexpr const char* kOp = "rotary_embedding";

Tensor rotate(const Tensor& x, const Angles& angles, int64_t head_dim, const char* name) {
  const Dtype dtype = dtype_of(x, kOp, name);
  const int64_t heads = heads_of(x, head_dim, kOp, name);
  const Tensor y = torch::stable::new_empty(x, x.sizes());
  const RotaryArgs args{
      x.const_data_ptr(), y.mutable_data_ptr(), angles.cos,  angles.sin,        heads,
      head_dim,           angles.half,          x.stride(0), angles.cos_stride, angles.sin_stride};
  for_rows(x.size(0), x.size(1),
           [&](int64_t begin, int64_t end) { kernels().rotary[dtype](args, begin, end); });
  return y;
}

}  // namespace

std::tuple<Tensor, Tensor> rotary_embedding(const Tensor& q, const Tensor& k, const Tensor& cos,
                                            const Tensor& sin, int64_t head_dim) {
  check_layout(q, 2, kOp, "q");
  const Angles angles = angles_of(cos, sin, q.size(0), head_dim, kOp);
  check_layout(k, 2, kOp, "k");
  check_size(k, 0, q.size(0), kOp, "k", "the tokens of q");
  return {rotate(q, angles, head_dim, "q"), rotate(k, angles, head_dim, "k")};
}

}  // namespace vcc
