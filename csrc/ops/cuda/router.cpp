// Routers on CUDA tensors.
#include "ops.h"
#include "shape.h"
#include "tensors.h"

namespace vcc::cuda {
namespace {

constexpr int64_t kMostExperts = 512, kMostChosen = 32, kThreads = 256;

std::tuple<Tensor, Tensor> run(const char* op, const Tensor& logits, int64_t top_k,
                               bool renormalise) {
  const char* suffix = suffix_of(logits, op, "logits");
  check_dims(logits, 2, op, "logits");
  const int64_t rows = logits.size(0), experts = logits.size(1);
  VCC_CHECK(experts <= kMostExperts && top_k > 0 && top_k <= std::min(kMostChosen, experts), op,
            ": ", top_k, " of ", experts, " experts; the kernel takes ", kMostChosen, " of ",
            kMostExperts, " at most");
  const std::vector<int64_t> sizes{rows, top_k};
  const Tensor weights = torch::stable::new_empty(logits, sizes, ScalarType::Float);
  const Tensor ids = torch::stable::new_empty(logits, sizes, ScalarType::Int);
  Launch launch(op);
  launch.tensor(logits).tensor(weights).tensor(ids);
  launch.i32(rows).i32(experts).i32(top_k).i32(renormalise).i64(logits.stride(0));
  launch.run(std::string("vcc_") + op + "_" + suffix, ceildiv(rows, kThreads / kWarp), kThreads,
             logits);
  return {weights, ids};
}

}  // namespace

std::tuple<Tensor, Tensor> topk_softmax(const Tensor& logits, int64_t top_k, bool renormalise) {
  return run("topk_softmax", logits, top_k, renormalise);
}

std::tuple<Tensor, Tensor> topk_sigmoid(const Tensor& logits, int64_t top_k, bool renormalise) {
  return run("topk_sigmoid", logits, top_k, renormalise);
}

}  // namespace vcc::cuda
