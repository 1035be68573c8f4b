// vcc::moe_experts: checks, rows sorted by expert, and the work on torch's threads. The arithmetic
// is in cpu/expert_products.h.
#include "ops.h"
#include "pairs.h"
#include "work.h"

namespace vcc {
namespace {

constexpr const char* kOp = "moe_experts";
// Pairs of one work item of the first products, and bytes of weights that it reads about.
constexpr int64_t kItemPairs = 96, kItemBytes = 256 << 10;
// Columns of an item: whole vectors, and not so many that threads wait for the last one.
constexpr int64_t kFewestColumns = 16, kMostColumns = 128;

void check_dense(const Tensor& t, const Tensor& x, const char* name) {
  check_same_dtype(t, x, kOp, name, "x");
  VCC_CHECK(t.is_contiguous(), kOp, ": ", name, " must be contiguous");
}

int64_t columns_of(int64_t depth, int64_t item_size) {
  const int64_t fit = kItemBytes / std::max<int64_t>(1, depth * item_size);
  return std::clamp(fit / kFewestColumns * kFewestColumns, kFewestColumns, kMostColumns);
}

void plan_up(const ExpertsArgs& e, int64_t item_size, std::vector<ExpertTile>& tiles) {
  const int64_t step = columns_of(2 * e.hidden, item_size);
  for (int64_t expert = 0; expert < e.experts; ++expert) {
    for (int64_t begin = e.first[expert]; begin < e.first[expert + 1]; begin += kItemPairs) {
      const int64_t end = std::min(begin + kItemPairs, e.first[expert + 1]);
      for (int64_t column = 0; column < e.width; column += step) {
        tiles.push_back({expert, begin, end, column, std::min(step, e.width - column)});
      }
    }
  }
}

// Columns of the result go to one item whole, so that rows of several experts are added in order.
void plan_down(const ExpertsArgs& e, int64_t item_size, std::vector<ExpertTile>& tiles) {
  const int64_t threads = torch::stable::get_num_threads();
  int64_t step = columns_of(e.width, item_size);
  while (step > kFewestColumns && e.hidden / step < 4 * threads) step -= kFewestColumns;
  for (int64_t column = 0; column < e.hidden; column += step) {
    tiles.push_back({0, 0, 0, column, std::min(step, e.hidden - column)});
  }
}

void run(const ExpertsArgs& e, const ExpertKernels& kernels, int64_t item_size, int64_t pairs) {
  thread_local std::vector<ExpertTile> tiles;
  const bool serial = pairs * e.width * e.hidden < kSerialWork;
  tiles.clear();
  plan_up(e, item_size, tiles);
  for_items(tiles, serial, [&](const ExpertTile& tile) {
    thread_local Scratch own;
    kernels.up(e, tile, own.floats(2 * kMostDotRows * tile.columns));
  });
  tiles.clear();
  plan_down(e, item_size, tiles);
  for_items(tiles, serial, [&](const ExpertTile& tile) {
    thread_local Scratch own;
    kernels.down(e, tile, own.floats((e.tokens + kMostDotRows) * tile.columns));
  });
}

}  // namespace

Tensor moe_experts(const Tensor& x, const Tensor& gate_up, const Tensor& down,
                   const Tensor& weights, const Tensor& ids) {
  const Dtype dtype = dtype_of(x, kOp, "x");
  const ExpertShape s = expert_shape(x, gate_up, down, weights, ids, kOp);
  check_dense(gate_up, x, "gate_up");
  check_dense(down, x, "down");
  const Tensor out = torch::stable::new_empty(x, x.sizes());
  thread_local Pairs pairs;
  pairs.sort(weights, ids, s.experts, kOp);
  const int64_t count = s.tokens * s.top_k, size = static_cast<int64_t>(x.element_size());
  thread_local Scratch inner;
  ExpertsArgs e{};
  e.x = x.const_data_ptr(), e.x_stride = x.stride(0);
  e.gate_up = gate_up.const_data_ptr(), e.down = down.const_data_ptr();
  e.inner = inner.floats((count * s.width * size + 3) / 4), e.out = out.mutable_data_ptr();
  e.token = pairs.token.data(), e.weight = pairs.weight.data(), e.first = pairs.first.data();
  e.tokens = s.tokens, e.hidden = s.hidden, e.width = s.width, e.experts = s.experts;
  run(e, expert_kernels(dtype), size, count);
  return out;
}

}  // namespace vcc
