// vcc::rope_kv_write: rotated keys go straight to their slots, rotated queries to `q_out`.
#include "ops.h"
#include "rotary_args.h"
#include "slots.h"
#include "work.h"

namespace vcc {
namespace {

constexpr const char* kOp = "rope_kv_write";

// Bytes of row `row` of a matrix.
char* row_of(const Tensor& t, int64_t row) {
  const int64_t item = static_cast<int64_t>(t.element_size());
  return static_cast<char*>(const_cast<void*>(t.const_data_ptr())) + row * t.stride(0) * item;
}

void check_queries(const Tensor& q, const Tensor& out, const Tensor& k) {
  check_same_dtype(q, k, kOp, "q", "k");
  check_same_dtype(out, q, kOp, "q_out", "q");
  check_layout(out, 2, kOp, "q_out");
  check_size(out, 0, q.size(0), kOp, "q_out", "the rows of q");
  check_size(out, 1, q.size(1), kOp, "q_out", "the columns of q");
}

}  // namespace

void rope_kv_write(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos,
                   const Tensor& sin, const Tensor& kv_cache, const Tensor& slot_mapping,
                   const Tensor& q_out, int64_t head_dim, std::optional<Tensor> kv_scale) {
  check_layout(q, 2, kOp, "q");
  check_layout(k, 2, kOp, "k");
  const Slots to = slots_in(kv_cache, k, kv_scale, kOp);
  const Cache& cache = to.cache;
  const int64_t tokens = k.size(0);
  const Angles angles = angles_of(cos, sin, tokens, head_dim, kOp);
  check_size(q, 0, tokens, kOp, "q", "the tokens of k");
  check_rows(k, cache, k, tokens, kOp, "k");
  check_rows(v, cache, k, tokens, kOp, "v");
  check_queries(q, q_out, k);
  VCC_CHECK(head_dim == cache.head_dim, kOp, ": head_dim is ", head_dim,
            ", and the heads of kv_cache have ", cache.head_dim, " values");
  const int64_t heads = heads_of(q, head_dim, kOp, "q");
  const int32_t* slots = slots_of(slot_mapping, cache, tokens, kOp);
  for_rows(tokens, q.size(1) + k.size(1), [&](int64_t begin, int64_t end) {
    thread_local Scratch own;
    char* key = reinterpret_cast<char*>(own.floats(k.size(1)));
    for (int64_t i = begin; i < end; ++i) {
      rotate_row(row_of(q, i), row_of(q_out, i), heads, head_dim, angles, i, to.dtype);
      if (slots[i] < 0) continue;
      rotate_row(row_of(k, i), key, cache.heads, head_dim, angles, i, to.dtype);
      put_row(key, slots[i], to, false);
      put_row(row_of(v, i), slots[i], to, true);
    }
  });
}

}  // namespace vcc
