// vcc::kv_write: copy each token's keys and values to its slot of the paged cache.
#include <cstring>

#include "cache.h"
#include "ops.h"
#include "rows.h"

namespace vcc {
namespace {

constexpr const char* kOp = "kv_write";

void check_input(const Tensor& t, const Cache& cache, const Tensor& kv_cache, int64_t tokens,
                 const char* name) {
  check_layout(t, 2, kOp, name);
  check_same_dtype(t, kv_cache, kOp, name, "kv_cache");
  check_size(t, 0, tokens, kOp, name, "the tokens of k");
  check_size(t, 1, cache.heads * cache.head_dim, kOp, name, "kv_heads * head_dim of kv_cache");
}

// All slots are checked before the first write, so a bad one leaves the cache as it was.
void check_slots(const int32_t* slots, int64_t tokens, int64_t limit) {
  for (int64_t i = 0; i < tokens; ++i) {
    VCC_CHECK(slots[i] >= -1 && slots[i] < limit, kOp, ": slot_mapping[", i, "] is ", slots[i],
              ", outside the ", limit, " slots of kv_cache (-1 marks padding)");
  }
}

struct Copy {
  const char* from;
  char* to;
  int64_t from_stride;  // elements, as in Cache
};

void copy_row(const Copy& copy, const Cache& cache, int64_t token, int64_t slot, int64_t size) {
  const int64_t block = slot / cache.block_size, offset = slot % cache.block_size;
  const char* from = copy.from + token * copy.from_stride * size;
  char* to = copy.to + (block * cache.block_stride + offset * cache.slot_stride) * size;
  if (cache.head_stride == cache.head_dim) {
    std::memcpy(to, from, cache.heads * cache.head_dim * size);
    return;
  }
  for (int64_t head = 0; head < cache.heads; ++head) {
    std::memcpy(to + head * cache.head_stride * size, from + head * cache.head_dim * size,
                cache.head_dim * size);
  }
}

}  // namespace

void kv_write(const Tensor& k, const Tensor& v, const Tensor& kv_cache,
              const Tensor& slot_mapping) {
  const Cache cache = cache_of(kv_cache, kOp);
  dtype_of(kv_cache, kOp, "kv_cache");
  check_layout(k, 2, kOp, "k");
  const int64_t tokens = k.size(0), size = static_cast<int64_t>(kv_cache.element_size());
  check_input(k, cache, kv_cache, tokens, "k");
  check_input(v, cache, kv_cache, tokens, "v");
  const int32_t* slots = indices(slot_mapping, tokens, kOp, "slot_mapping", "the tokens of k");
  check_slots(slots, tokens, cache.blocks * cache.block_size);
  char* base = static_cast<char*>(kv_cache.mutable_data_ptr());
  const Copy copies[] = {
      {static_cast<const char*>(k.const_data_ptr()), base, k.stride(0)},
      {static_cast<const char*>(v.const_data_ptr()), base + cache.part_stride * size, v.stride(0)}};
  for_rows(tokens, k.size(1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (slots[i] < 0) continue;
      for (const Copy& copy : copies) copy_row(copy, cache, i, slots[i], size);
    }
  });
}

}  // namespace vcc
