// Rows of keys and values on their way to slots of the paged cache.
#pragma once

#include <cstring>

#include "cache.h"
#include "quant.h"

namespace vcc {

inline void check_rows(const Tensor& t, const Cache& cache, const Tensor& like, int64_t tokens,
                       const char* op, const char* name) {
  check_layout(t, 2, op, name);
  check_same_dtype(t, like, op, name, "k");
  check_size(t, 0, tokens, op, name, "the tokens of k");
  check_size(t, 1, cache.heads * cache.head_dim, op, name, "kv_heads * head_dim of kv_cache");
}

// The slots of all rows. They are checked before the first write, so a bad one leaves the cache as
// it was.
inline const int32_t* slots_of(const Tensor& t, const Cache& cache, int64_t tokens,
                               const char* op) {
  const int32_t* slots = indices(t, tokens, op, "slot_mapping", "the tokens of k");
  const int64_t limit = cache.blocks * cache.block_size;
  for (int64_t i = 0; i < tokens; ++i) {
    VCC_CHECK(slots[i] >= -1 && slots[i] < limit, op, ": slot_mapping[", i, "] is ", slots[i],
              ", outside the ", limit, " slots of kv_cache (-1 marks padding)");
  }
  return slots;
}

// Where a slot begins, in elements of its half of the cache.
inline int64_t place_of(const Cache& cache, int64_t slot) {
  return slot / cache.block_size * cache.block_stride + slot % cache.block_size * cache.slot_stride;
}

// Where rows go, and what they become there.
struct Slots {
  Cache cache;
  char* base;
  int64_t item;  // bytes of an element of the cache
  Dtype dtype;   // of the rows
  bool fp8;
  CacheScales scales;
};

inline Slots slots_in(const Tensor& kv_cache, const Tensor& k, const std::optional<Tensor>& scale,
                      const char* op) {
  Slots s{cache_of(kv_cache, op),
          static_cast<char*>(kv_cache.mutable_data_ptr()),
          static_cast<int64_t>(kv_cache.element_size()),
          dtype_of(k, op, "k"),
          is_fp8(kv_cache),
          scales_of(scale, kv_cache, op)};
  if (!s.fp8) check_same_dtype(k, kv_cache, op, "k", "kv_cache");
  return s;
}

// `count` values that lie one after another.
inline void put_values(const char* from, char* to, int64_t count, const Slots& s, float scale) {
  if (!s.fp8) {
    std::memcpy(to, from, count * s.item);
    return;
  }
  QuantArgs args{};
  args.x = from, args.q = reinterpret_cast<uint8_t*>(to), args.scale = &scale;
  args.dim = args.block = count;
  kernels().quantise[s.dtype](args, 0, 1);
}

// Put a row of keys, or of values, into its slot.
inline void put_row(const char* from, int64_t slot, const Slots& s, bool value) {
  const Cache& cache = s.cache;
  char* to = s.base + (place_of(cache, slot) + (value ? cache.part_stride : 0)) * s.item;
  const float scale = value ? s.scales.value : s.scales.key;
  if (cache.head_stride == cache.head_dim) {
    put_values(from, to, cache.heads * cache.head_dim, s, scale);
    return;
  }
  const int64_t wide = s.dtype == kFloat32 ? 4 : 2;
  for (int64_t head = 0; head < cache.heads; ++head) {
    put_values(from + head * cache.head_dim * wide, to + head * cache.head_stride * s.item,
               cache.head_dim, s, scale);
  }
}

}  // namespace vcc
