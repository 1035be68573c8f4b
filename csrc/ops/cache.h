// The paged cache [2, blocks, block_size, kv_heads, head_dim] as the operators see it.
#pragma once

#include "check.h"

namespace vcc {

struct Cache {
  int64_t blocks, block_size, heads, head_dim;
  int64_t part_stride, block_stride, slot_stride, head_stride;  // elements
};

inline Cache cache_of(const Tensor& t, const char* op) {
  check_layout(t, 5, op, "kv_cache");
  check_size(t, 0, 2, op, "kv_cache", "keys and values");
  VCC_CHECK(t.size(2) > 0 && t.size(3) > 0 && t.size(4) > 0, op,
            ": kv_cache must have block_size, kv_heads and head_dim above 0");
  return {t.size(1),   t.size(2),   t.size(3),   t.size(4),
          t.stride(0), t.stride(1), t.stride(2), t.stride(3)};
}

}  // namespace vcc
