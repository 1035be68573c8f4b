// vcc::rope_kv_write: q turned into q_out, k turned and v into their slot of the paged cache.
#include "entry.cuh"
#include "rope.cuh"

#define ROPE_KV(T, C, kv_scale)                                                 \
  vcc::Rope<T, C> r{};                                                          \
  r.q = q, r.k = k, r.v = v, r.cos = cos, r.sin = sin, r.q_out = q_out;         \
  r.cache = kv_cache, r.slots = slot_mapping, r.scales = kv_scale;              \
  r.heads = heads, r.kv_heads = kv_heads, r.head_dim = head_dim, r.half = half; \
  r.lanes = lanes, r.shift = shift, r.block_size = block_size;                  \
  r.q_stride = q_stride, r.k_stride = k_stride, r.v_stride = v_stride;          \
  r.cos_stride = cos_stride, r.sin_stride = sin_stride;                         \
  r.plane = plane, r.block_stride = block_stride, r.slot_stride = slot_stride;  \
  vcc::rope<false, true>(r);

#define KERNEL(name, T)                                                                          \
  VCC_KERNEL(256, VCC_TIGHT(4), vcc_rope_kv_write_##name, const T* q, const T* k, const T* v,    \
             const float* cos, const float* sin, T* kv_cache, const int* slot_mapping, T* q_out, \
             int heads, int kv_heads, int head_dim, int half, int lanes, int shift,              \
             int block_size, int64_t q_stride, int64_t k_stride, int64_t v_stride,               \
             int64_t cos_stride, int64_t sin_stride, int64_t plane, int64_t block_stride,        \
             int64_t slot_stride) {                                                              \
    ROPE_KV(T, T, nullptr)                                                                       \
  }
VCC_EACH_TYPE(KERNEL)

#define ROPE_FP8_KERNEL(name, T)                                                              \
  VCC_KERNEL(256, 1, vcc_rope_kv_write_fp8_##name, const T* q, const T* k, const T* v,        \
             const float* cos, const float* sin, vcc::fp8* kv_cache, const int* slot_mapping, \
             T* q_out, int heads, int kv_heads, int head_dim, int half, int lanes, int shift, \
             int block_size, int64_t q_stride, int64_t k_stride, int64_t v_stride,            \
             int64_t cos_stride, int64_t sin_stride, int64_t plane, int64_t block_stride,     \
             int64_t slot_stride, const float* kv_scale) {                                    \
    ROPE_KV(T, vcc::fp8, kv_scale)                                                            \
  }
VCC_EACH_TYPE(ROPE_FP8_KERNEL)
