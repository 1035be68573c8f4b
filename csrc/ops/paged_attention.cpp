// vcc::paged_attention: checks, the plan of work items, and their run on torch's threads. The
// arithmetic is in cpu/attention.cpp.
#include <algorithm>
#include <cstring>
#include <vector>

#include "cache.h"
#include "ops.h"
#include "work.h"

namespace vcc {
namespace {

constexpr const char* kOp = "paged_attention";

struct Batch {
  const int32_t *table, *lens, *starts;
  int64_t sequences, tokens, columns, table_stride;
};

Batch batch_of(const Tensor& block_table, const Tensor& seq_lens, const Tensor& query_start,
               int64_t tokens) {
  check_layout(block_table, 2, kOp, "block_table");
  check_type(block_table, ScalarType::Int, kOp, "block_table");
  const int64_t sequences = block_table.size(0);
  return {static_cast<const int32_t*>(block_table.const_data_ptr()),
          indices(seq_lens, sequences, kOp, "seq_lens", "the rows of block_table"),
          indices(query_start, sequences + 1, kOp, "query_start", "the rows of block_table plus 1"),
          sequences,
          tokens,
          block_table.size(1),
          block_table.stride(0)};
}

// Every index that a kernel will follow: a bad one must not read foreign memory.
void check_sequence(const Batch& b, int64_t i, const Cache& cache) {
  const int64_t begin = b.starts[i], end = b.starts[i + 1], length = b.lens[i];
  VCC_CHECK(begin <= end && end <= b.tokens, kOp, ": query_start[", i + 1, "] is ", end,
            ", it must rise and stay within the ", b.tokens, " rows of q");
  VCC_CHECK(length >= 0 && length <= b.columns * cache.block_size, kOp, ": seq_lens[", i, "] is ",
            length, ", outside what ", b.columns, " blocks of ", cache.block_size, " hold");
  if (begin == end) return;
  VCC_CHECK(length == 0 || end - begin <= length, kOp, ": seq_lens[", i, "] is ", length,
            ", fewer than the ", end - begin, " query rows of that sequence");
  const int32_t* row = b.table + i * b.table_stride;
  for (int64_t j = 0; j * cache.block_size < length; ++j) {
    VCC_CHECK(row[j] >= 0 && row[j] < cache.blocks, kOp, ": block_table[", i, ", ", j, "] is ",
              row[j], ", outside the ", cache.blocks, " blocks of kv_cache");
  }
}

struct Item {
  int32_t tile;
  int32_t kv_head;
  int32_t chunk;
};

struct Plan {
  std::vector<AttentionTile> tiles;
  std::vector<Item> items;
  std::vector<Item> merges;
  int64_t scratch = 0, partials = 0, work = 0;

  void clear() {
    tiles.clear(), items.clear(), merges.clear();
    scratch = partials = work = 0;
  }
};

// One sequence's tiles; its last ones are the longest, and items go from the last to the first. How
// it is cut depends on its own lengths only, so neither its neighbours in the batch nor the number
// of threads change a result.
void plan_sequence(const AttentionArgs& a, const Batch& b, int64_t i, int64_t kv_heads,
                   Plan& plan) {
  const int64_t begin = b.starts[i], rows = b.starts[i + 1] - begin, length = b.lens[i];
  if (rows == 0 || length == 0) return;
  const bool direct = rows * a.group <= kDirectRows;
  const int64_t step = direct ? rows : std::max<int64_t>(1, kPackedRows / a.group);
  for (int64_t row = 0; row < rows; row += step) {
    // Query rows are the last tokens of their sequence: the first has position length - rows.
    AttentionTile tile{i, begin + row, std::min(step, rows - row), length - rows + row, 1, 0};
    if (direct) tile.chunks = (length + kSplitKeys - 1) / kSplitKeys;
    const int64_t size = kernels().attention_partial(a, tile.rows * a.group);
    tile.partial = plan.partials;
    const int32_t index = static_cast<int32_t>(plan.tiles.size());
    for (int32_t head = 0; head < kv_heads; ++head) {
      for (int32_t c = 0; c < tile.chunks; ++c) plan.items.push_back({index, head, c});
      if (tile.chunks > 1) plan.merges.push_back({index, head, 0});
    }
    if (tile.chunks > 1) plan.partials += kv_heads * tile.chunks * size;
    plan.scratch = std::max(plan.scratch, kernels().attention_scratch(a, tile.rows * a.group));
    plan.work += tile.rows * a.group * (tile.position + tile.rows) * a.head_dim * kv_heads;
    plan.tiles.push_back(tile);
  }
}

float* partials_of(const Plan& plan, const Item& item, int64_t size, float* partials) {
  const AttentionTile& tile = plan.tiles[item.tile];
  return tile.chunks > 1 ? partials + tile.partial + item.kv_head * tile.chunks * size : nullptr;
}

void run(const AttentionArgs& a, const Plan& plan, Dtype dtype, CacheKind kind) {
  thread_local Scratch shared;
  float* partials = shared.floats(plan.partials);
  const auto size_of = [&](const Item& item) {
    return kernels().attention_partial(a, plan.tiles[item.tile].rows * a.group);
  };
  for_items(plan.items, plan.work < kSerialWork, [&](const Item& item) {
    thread_local Scratch own;  // of the thread that takes the item; partials are the caller's
    kernels().attend[kind][dtype](a, plan.tiles[item.tile], item.kv_head, item.chunk,
                                  own.floats(plan.scratch),
                                  partials_of(plan, item, size_of(item), partials));
  });
  for_items(plan.merges, plan.partials < kSerialWork, [&](const Item& item) {
    kernels().merge[dtype](a, plan.tiles[item.tile], item.kv_head,
                           partials_of(plan, item, size_of(item), partials));
  });
}

// Rows that belong to no sequence, or to one without keys.
void clear_rows(const Tensor& out, int64_t begin, int64_t end) {
  const int64_t size = static_cast<int64_t>(out.element_size());
  char* data = static_cast<char*>(out.mutable_data_ptr());
  for (int64_t row = begin; row < end; ++row) {
    std::memset(data + row * out.stride(0) * size, 0, out.size(1) * size);
  }
}

void clear_padding(const Tensor& out, const Batch& b) {
  for (int64_t i = 0; i < b.sequences; ++i) {
    if (b.lens[i] == 0) clear_rows(out, b.starts[i], b.starts[i + 1]);
  }
  clear_rows(out, b.starts[b.sequences], b.tokens);
}

AttentionArgs args_of(const Tensor& q, const Tensor& kv_cache, const Tensor& out,
                      const Cache& cache, const CacheScales& scales, const Batch& batch) {
  const char* base = static_cast<const char*>(kv_cache.const_data_ptr());
  AttentionArgs a{};
  a.q = q.const_data_ptr(), a.out = out.mutable_data_ptr();
  a.k = base, a.v = base + cache.part_stride * static_cast<int64_t>(kv_cache.element_size());
  a.block_table = batch.table, a.table_stride = batch.table_stride;
  a.q_stride = q.stride(0), a.out_stride = out.stride(0);
  a.block_stride = cache.block_stride, a.slot_stride = cache.slot_stride;
  a.head_stride = cache.head_stride, a.block_size = cache.block_size;
  a.head_dim = cache.head_dim, a.group = q.size(1) / (cache.heads * cache.head_dim);
  // The scale of fp8 keys is that of their scores too: the caller multiplies its own into it.
  a.scale = scales.key, a.v_scale = scales.value;
  return a;
}

void check_query(const Tensor& q, const Tensor& kv_cache, const Tensor& out, const Cache& cache) {
  const int64_t unit = cache.heads * cache.head_dim;
  if (!is_fp8(kv_cache)) check_same_dtype(kv_cache, q, kOp, "kv_cache", "q");
  check_same_dtype(out, q, kOp, "out", "q");
  check_layout(out, 2, kOp, "out");
  check_size(out, 0, q.size(0), kOp, "out", "the rows of q");
  check_size(out, 1, q.size(1), kOp, "out", "the columns of q");
  VCC_CHECK(q.size(1) > 0 && q.size(1) % unit == 0, kOp, ": q has ", q.size(1),
            " columns, no multiple of kv_heads * head_dim = ", unit, " of kv_cache");
}

}  // namespace

void paged_attention(const Tensor& q, const Tensor& kv_cache, const Tensor& block_table,
                     const Tensor& seq_lens, const Tensor& query_start, const Tensor& out,
                     double scale, int64_t sliding_window, double soft_cap,
                     std::optional<Tensor> kv_scale) {
  check_layout(q, 2, kOp, "q");
  const Dtype dtype = dtype_of(q, kOp, "q");
  const Cache cache = cache_of(kv_cache, kOp);
  check_query(q, kv_cache, out, cache);
  VCC_CHECK(sliding_window >= 0, kOp, ": sliding_window must not be negative, it is ",
            sliding_window);
  VCC_CHECK(soft_cap >= 0, kOp, ": soft_cap must not be negative, it is ", soft_cap);
  const Batch batch = batch_of(block_table, seq_lens, query_start, q.size(0));
  VCC_CHECK(batch.starts[0] == 0, kOp, ": query_start[0] must be 0, it is ", batch.starts[0]);
  for (int64_t i = 0; i < batch.sequences; ++i) check_sequence(batch, i, cache);
  AttentionArgs args = args_of(q, kv_cache, out, cache, scales_of(kv_scale, kv_cache, kOp), batch);
  args.scale *= static_cast<float>(scale), args.cap = static_cast<float>(soft_cap);
  args.window = sliding_window;
  thread_local Plan plan;
  plan.clear();
  for (int64_t i = 0; i < batch.sequences; ++i) plan_sequence(args, batch, i, cache.heads, plan);
  clear_padding(out, batch);
  run(args, plan, dtype, is_fp8(kv_cache) ? kFp8Cache : kOwnType);
}

}  // namespace vcc
