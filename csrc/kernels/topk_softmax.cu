// vcc::topk_softmax
#include "entry.cuh"
#include "router.cuh"

#define KERNEL(name, T)                                                                            \
  VCC_KERNEL(256, 1, vcc_topk_softmax_##name, const T* logits, float* weights, int* ids, int rows, \
             int experts, int top_k, int renormalise, int64_t stride) {                            \
    vcc::route<false>(                                                                             \
        vcc::Router<T>{logits, weights, ids, rows, experts, top_k, stride, renormalise != 0});     \
  }
VCC_EACH_TYPE(KERNEL)
