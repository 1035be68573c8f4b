// vcc::kv_write: keys and values of each token to its slot of the paged cache; slot -1 is skipped.
#include "cache.cuh"
#include "entry.cuh"

namespace vcc {

template <class T, class C>
struct KvWrite {
  const T *k, *v;
  C* cache;  // keys, `plane` values further values
  const int* slots;
  int width, block_size;
  int64_t k_stride, v_stride, plane, block_stride, slot_stride;
  const float* scales;  // of an fp8 cache; null: ones
};

template <class T, class C>
__device__ inline bool is_aligned(const KvWrite<T, C>& w) {
  uint32_t odd = place_bits(w.k) | place_bits(w.v);
  odd |= row_bits<T>(w.width | w.k_stride | w.v_stride | w.plane | w.block_stride | w.slot_stride);
  return (odd | place_bits(w.cache) * (sizeof(T) / sizeof(C))) % sizeof(Chunk) == 0;
}

constexpr int kChunksAtOnce = 2;  // of keys, and as many of values

template <bool kAligned, class T, class C>
__device__ inline void kv_token(const KvWrite<T, C>& w) {
  constexpr int kTurn = kAligned ? kChunksAtOnce : 1;
  const int64_t token = blockIdx.x;
  const int slot = read_value(w.slots + token);
  const T *k = w.k + token * w.k_stride, *v = w.v + token * w.v_stride;
  const CacheScales scales(w.scales);
  const int step = blockDim.x * kValues<T>;
  for (int at = threadIdx.x * kValues<T>; at < w.width; at += kTurn * step) {
    Chunk key[kTurn], value[kTurn];
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      const int from = at + i * step;
      key[i] = load<kAligned, true>(k + from, w.width - from);
      value[i] = load<kAligned, true>(v + from, w.width - from);
    }
    if (slot < 0) return;  // asked behind the loads, which do not wait for it
    C* home = w.cache + slot / w.block_size * w.block_stride + slot % w.block_size * w.slot_stride;
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      const int to = at + i * step;
      store_cached<kAligned, T>(home + to, key[i], scales.key, w.width - to);
      store_cached<kAligned, T>(home + w.plane + to, value[i], scales.value, w.width - to);
    }
  }
}

template <class T, class C>
__device__ inline void kv_write(const KvWrite<T, C>& w) {
  is_aligned(w) ? kv_token<true>(w) : kv_token<false>(w);
}

}  // namespace vcc

#define KERNEL(name, T)                                                                         \
  VCC_KERNEL(256, VCC_FULL, vcc_kv_write_##name, const T* k, const T* v, T* kv_cache,           \
             const int* slot_mapping, int width, int block_size, int64_t k_stride,              \
             int64_t v_stride, int64_t plane, int64_t block_stride, int64_t slot_stride) {      \
    vcc::kv_write(vcc::KvWrite<T, T>{k, v, kv_cache, slot_mapping, width, block_size, k_stride, \
                                     v_stride, plane, block_stride, slot_stride, nullptr});     \
  }
VCC_EACH_TYPE(KERNEL)

#define KV_FP8_KERNEL(name, T)                                                                    \
  VCC_KERNEL(256, 1, vcc_kv_write_fp8_##name, const T* k, const T* v, vcc::fp8* kv_cache,         \
             const int* slot_mapping, int width, int block_size, int64_t k_stride,                \
             int64_t v_stride, int64_t plane, int64_t block_stride, int64_t slot_stride,          \
             const float* kv_scale) {                                                             \
    vcc::kv_write(vcc::KvWrite<T, vcc::fp8>{k, v, kv_cache, slot_mapping, width, block_size,      \
                                            k_stride, v_stride, plane, block_stride, slot_stride, \
                                            kv_scale});                                           \
  }
VCC_EACH_TYPE(KV_FP8_KERNEL)
