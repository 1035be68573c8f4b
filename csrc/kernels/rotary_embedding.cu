// vcc::rotary_embedding
#include "entry.cuh"
#include "rope.cuh"

#define KERNEL(name, T)                                                                        \
  VCC_KERNEL(256, VCC_TIGHT(4), vcc_rotary_embedding_##name, const T* q, const T* k,           \
             const float* cos, const float* sin, T* q_out, T* k_out, int heads, int kv_heads,  \
             int head_dim, int half, int lanes, int shift, int64_t q_stride, int64_t k_stride, \
             int64_t cos_stride, int64_t sin_stride) {                                         \
    vcc::Rope<T> r{};                                                                          \
    r.q = q, r.k = k, r.cos = cos, r.sin = sin, r.q_out = q_out, r.k_out = k_out;              \
    r.heads = heads, r.kv_heads = kv_heads, r.head_dim = head_dim, r.half = half;              \
    r.lanes = lanes, r.shift = shift, r.q_stride = q_stride, r.k_stride = k_stride;            \
    r.cos_stride = cos_stride, r.sin_stride = sin_stride;                                      \
    vcc::rope<false, false>(r);                                                                \
  }
VCC_EACH_TYPE(KERNEL)
