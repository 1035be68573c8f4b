// vcc::topk_softmax.
#include "ops.h"
#include "work.h"

namespace vcc {

std::tuple<Tensor, Tensor> topk_softmax(const Tensor& logits, int64_t top_k, bool renormalise) {
  const char* op = "topk_softmax";
  check_layout(logits, 2, op, "logits");
  const Dtype dtype = dtype_of(logits, op, "logits");
  const int64_t rows = logits.size(0), experts = logits.size(1);
  VCC_CHECK(top_k >= 1 && top_k <= experts, op, ": top_k must be from 1 to the ", experts,
            " columns of logits, it is ", top_k);
  const int64_t sizes[] = {rows, top_k};
  const Tensor weights = torch::stable::new_empty(logits, sizes, ScalarType::Float);
  const Tensor ids = torch::stable::new_empty(logits, sizes, ScalarType::Int);
  const RouterArgs args{logits.const_data_ptr(),
                        static_cast<float*>(weights.mutable_data_ptr()),
                        static_cast<int32_t*>(ids.mutable_data_ptr()),
                        logits.stride(0),
                        experts,
                        top_k,
                        renormalise};
  for_rows(rows, experts * top_k, [&](int64_t begin, int64_t end) {
    thread_local Scratch own;
    kernels().route[dtype](args, begin, end, own.floats(experts));
  });
  return {weights, ids};
}

}  // namespace vcc
