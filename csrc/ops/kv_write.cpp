// vcc::kv_write: copy each token's keys and values to its slot of the paged cache.
#include "ops.h"
#include "slots.h"

namespace vcc {
namespace {

constexpr const char* kOp = "kv_write";

// Bytes of row `row` of a matrix.
const char* row_of(const Tensor& t, int64_t row) {
  const int64_t item = static_cast<int64_t>(t.element_size());
  return static_cast<const char*>(t.const_data_ptr()) + row * t.stride(0) * item;
}

}  // namespace

void kv_write(const Tensor& k, const Tensor& v, const Tensor& kv_cache, const Tensor& slot_mapping,
              std::optional<Tensor> kv_scale) {
  check_layout(k, 2, kOp, "k");
  const Slots to = slots_in(kv_cache, k, kv_scale, kOp);
  const int64_t tokens = k.size(0);
  check_rows(k, to.cache, k, tokens, kOp, "k");
  check_rows(v, to.cache, k, tokens, kOp, "v");
  const int32_t* slots = slots_of(slot_mapping, to.cache, tokens, kOp);
  for_rows(tokens, k.size(1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (slots[i] < 0) continue;
      put_row(row_of(k, i), slots[i], to, false);
      put_row(row_of(v, i), slots[i], to, true);
    }
  });
}

}  // namespace vcc
