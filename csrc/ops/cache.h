// The paged cache [2, blocks, block_size, kv_heads, head_dim] as the operators see it.
#pragma once

#include <optional>

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

// Scales of keys and of values, which a float8_e4m3fn cache holds over them.
struct CacheScales {
  float key = 1, value = 1;
};

inline bool is_fp8(const Tensor& cache) { return cache.scalar_type() == ScalarType::Float8_e4m3fn; }

// Ones where none are given.
inline CacheScales scales_of(const std::optional<Tensor>& scale, const Tensor& cache,
                             const char* op) {
  if (!scale) return {};
  VCC_CHECK(is_fp8(cache), op, ": kv_scale goes with a float8_e4m3fn cache, kv_cache is ",
            torch::headeronly::toString(cache.scalar_type()));
  check_layout(*scale, 1, op, "kv_scale");
  check_type(*scale, ScalarType::Float, op, "kv_scale");
  check_size(*scale, 0, 2, op, "kv_scale", "keys and values");
  const float* both = static_cast<const float*>(scale->const_data_ptr());
  return {both[0], both[1]};
}

}  // namespace vcc
