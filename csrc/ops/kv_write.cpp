// vcc::kv_write: copy each token's keys and values to its slot of the paged cache.
#include "ops.h"
#include "slots.h"

namespace vcc {
namespace {

constexpr const char* kOp = "kv_write";

struct Copy {
  const char* from;
  char* to;
  int64_t stride;  // bytes from row to row
};

}  // namespace

void kv_write(const Tensor& k, const Tensor& v, const Tensor& kv_cache,
              const Tensor& slot_mapping) {
  const Cache cache = cache_of(kv_cache, kOp);
  dtype_of(kv_cache, kOp, "kv_cache");
  check_layout(k, 2, kOp, "k");
  const int64_t tokens = k.size(0), item = static_cast<int64_t>(kv_cache.element_size());
  check_rows(k, cache, kv_cache, tokens, kOp, "k");
  check_rows(v, cache, kv_cache, tokens, kOp, "v");
  const int32_t* slots = slots_of(slot_mapping, cache, tokens, kOp);
  char* base = static_cast<char*>(kv_cache.mutable_data_ptr());
  const Copy copies[] = {{static_cast<const char*>(k.const_data_ptr()), base, k.stride(0) * item},
                         {static_cast<const char*>(v.const_data_ptr()),
                          base + cache.part_stride * item, v.stride(0) * item}};
  for_rows(tokens, k.size(1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (slots[i] < 0) continue;
      const int64_t place = place_of(cache, slots[i]) * item;
      for (const Copy& copy : copies) {
        copy_row(copy.from + i * copy.stride, copy.to + place, cache, item);
      }
    }
  });
}

}  // namespace vcc
