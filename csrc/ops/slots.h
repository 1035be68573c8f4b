// Rows of keys and values on their way to slots of the paged cache.
#pragma once

#include <cstring>

#include "cache.h"
#include "rows.h"

namespace vcc {

inline void check_rows(const Tensor& t, const Cache& cache, const Tensor& kv_cache, int64_t tokens,
                       const char* op, const char* name) {
  check_layout(t, 2, op, name);
  check_same_dtype(t, kv_cache, op, name, "kv_cache");
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

// Copy the heads of a row from `from` to the slot at `to`.
inline void copy_row(const char* from, char* to, const Cache& cache, int64_t item) {
  if (cache.head_stride == cache.head_dim) {
    std::memcpy(to, from, cache.heads * cache.head_dim * item);
    return;
  }
  for (int64_t head = 0; head < cache.heads; ++head) {
    std::memcpy(to + head * cache.head_stride * item, from + head * cache.head_dim * item,
                cache.head_dim * item);
  }
}

}  // namespace vcc
