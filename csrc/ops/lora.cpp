// vcc::lora_shrink and vcc::lora_expand: checks, and runs of rows with one adapter on torch's
// threads. A row whose slot is not one of the stacked matrices' has no adapter.
#include <cstring>

#include "ops.h"
#include "work.h"

namespace vcc {
namespace {

// Rows that read a row of a matrix together, and columns of a work item.
constexpr int64_t kRows = 4, kColumns = 128;
// Rows of a work item of expand, whose kernel takes them one by one: more only make fewer items.
constexpr int64_t kExpandRows = 4 * kRows;

struct Matrices {
  int64_t slots, width, depth;
};

Matrices matrices_of(const Tensor& t, const Tensor& like, const char* op, const char* name,
                     const char* like_name) {
  check_layout(t, 3, op, name);
  check_same_dtype(t, like, op, name, like_name);
  VCC_CHECK(t.is_contiguous(), op, ": ", name, " must be contiguous");
  return {t.size(0), t.size(1), t.size(2)};
}

// Rows from `row` on, at most `most`, that have the same adapter.
int64_t run_of(const int32_t* slots, int64_t row, int64_t rows, int64_t most) {
  int64_t end = row + 1;
  while (end < rows && end - row < most && slots[end] == slots[row]) ++end;
  return end - row;
}

void add_columns(LoraTile tile, int64_t begin, int64_t end, std::vector<LoraTile>& tiles) {
  for (tile.column = begin; tile.column < end; tile.column += kColumns) {
    tile.columns = std::min(kColumns, end - tile.column);
    tiles.push_back(tile);
  }
}

bool has(const Matrices& m, int32_t slot) { return slot >= 0 && slot < m.slots; }

}  // namespace

Tensor lora_shrink(const Tensor& x, const Tensor& a, const Tensor& slots) {
  const char* op = "lora_shrink";
  const Dtype dtype = dtype_of(x, op, "x");
  check_layout(x, 2, op, "x");
  const Matrices m = matrices_of(a, x, op, "a", "x");
  check_size(a, 2, x.size(1), op, "a", "the columns of x");
  const int64_t rows = x.size(0), sizes[] = {rows, m.width};
  const int32_t* slot = indices(slots, rows, op, "slots", "the rows of x");
  const Tensor low = torch::stable::new_empty(x, sizes, ScalarType::Float);
  LoraArgs args{};
  args.x = x.const_data_ptr(), args.x_stride = x.stride(0), args.matrix = a.const_data_ptr();
  args.low = static_cast<float*>(low.mutable_data_ptr()), args.low_stride = m.width;
  args.width = m.width, args.depth = m.depth;
  thread_local std::vector<LoraTile> tiles;
  tiles.clear();
  for (int64_t row = 0, count; row < rows; row += count) {
    count = run_of(slot, row, rows, kRows);
    if (has(m, slot[row])) {
      add_columns({slot[row], row, count, 0, 0, 0}, 0, m.width, tiles);
    } else {  // zeros, as the plain form has them: expand does not read them
      std::memset(args.low + row * m.width, 0, count * m.width * sizeof(float));
    }
  }
  for_items(tiles, rows * m.width * m.depth < kSerialWork,
            [&](const LoraTile& tile) { kernels().lora_shrink[dtype](args, tile); });
  return low;
}

Tensor lora_expand(const Tensor& y, const Tensor& low, const Tensor& b, const Tensor& slots,
                   std::vector<int64_t> widths) {
  const char* op = "lora_expand";
  const Dtype dtype = dtype_of(y, op, "y");
  check_layout(y, 2, op, "y");
  check_layout(low, 2, op, "low");
  check_type(low, ScalarType::Float, op, "low");
  const Matrices m = matrices_of(b, y, op, "b", "y");
  const int64_t rows = y.size(0), parts = static_cast<int64_t>(widths.size());
  int64_t whole = 0;
  for (const int64_t width : widths) {
    VCC_CHECK(width >= 0, op, ": widths must not be negative, one is ", width);
    whole += width;
  }
  VCC_CHECK(whole == m.width, op, ": widths must add up to the ", m.width, " rows of b, they are ",
            whole);
  check_size(b, 1, y.size(1), op, "b", "the columns of y");
  check_size(low, 0, rows, op, "low", "the rows of y");
  check_size(low, 1, parts * m.depth, op, "low", "the rank of b for each of the widths");
  const int32_t* slot = indices(slots, rows, op, "slots", "the rows of y");
  const Tensor out = torch::stable::new_empty(y, y.sizes());
  LoraArgs args{};
  args.x = y.const_data_ptr(), args.x_stride = y.stride(0), args.matrix = b.const_data_ptr();
  // LoraArgs is shared with shrink, which writes `low`; expand only reads it.
  args.low = static_cast<float*>(const_cast<void*>(low.const_data_ptr()));
  args.low_stride = low.stride(0), args.out = out.mutable_data_ptr();
  args.width = m.width, args.depth = m.depth;
  const int64_t bytes = m.width * static_cast<int64_t>(y.element_size());
  thread_local std::vector<LoraTile> tiles;
  tiles.clear();
  for (int64_t row = 0, count; row < rows; row += count) {
    count = run_of(slot, row, rows, kExpandRows);
    if (has(m, slot[row])) {
      for (int64_t part = 0, begin = 0; part < parts; begin += widths[part++]) {
        add_columns({slot[row], row, count, 0, 0, part}, begin, begin + widths[part], tiles);
      }
      continue;
    }
    // Without an adapter a row is copied: its bits are those of the projection. x has a stride.
    for (int64_t one = row; one < row + count; ++one) {
      std::memcpy(static_cast<char*>(args.out) + one * bytes,
                  static_cast<const char*>(args.x) + one * args.x_stride * y.element_size(), bytes);
    }
  }
  for_items(tiles, rows * m.width * m.depth < kSerialWork,
            [&](const LoraTile& tile) { kernels().lora_expand[dtype](args, tile); });
  return out;
}

}  // namespace vcc
