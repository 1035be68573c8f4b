// vcc::scaled_linear: checks, rows in fp32, and columns of the result on torch's threads. The
// arithmetic is in cpu/scaled.cpp.
#include "ops.h"
#include "quant.h"

namespace vcc {
namespace {

constexpr const char* kOp = "scaled_linear";
// Columns of a work item where rows are few, and a panel where they are many.
constexpr int64_t kItemColumns = 32;

struct Columns {
  int64_t column, columns;
};

const float* scales_at(const Tensor& t, const char* name) {
  VCC_CHECK(t.is_cpu(), kOp, ": ", name, " must be on the CPU");
  check_type(t, ScalarType::Float, kOp, name);
  VCC_CHECK(t.is_contiguous(), kOp, ": ", name, " must be contiguous");
  return static_cast<const float*>(t.const_data_ptr());
}

int64_t blocks_in(int64_t size) { return (size + kScaleBlock - 1) / kScaleBlock; }

UnscaleArgs rows_with_scales(const Rows& rows, const Tensor& x_scale, bool blocks) {
  UnscaleArgs u{};
  u.x = static_cast<const uint8_t*>(rows.data()), u.x_stride = rows.stride;
  u.scales = scales_at(x_scale, "x_scale"), u.dim = u.block = rows.width;
  const int64_t each = blocks ? blocks_in(rows.width) : 1, count = x_scale.numel();
  if (blocks) u.block = kScaleBlock;
  u.scale_stride = count == 1 && !blocks ? 0 : each;
  VCC_CHECK(u.scale_stride == 0 || count == rows.count * each, kOp, ": x_scale must have ", each,
            " values for each of the ", rows.count, " rows of x, it has ", count);
  return u;
}

// A factor for each row of the weight; `own` holds it where scales are of ranges of rows.
const float* factors_of(const Tensor& w_scale, const std::vector<int64_t>& ranges, int64_t width,
                        std::vector<float>& own) {
  const float* scales = scales_at(w_scale, "w_scale");
  if (ranges.empty() || w_scale.size(0) != static_cast<int64_t>(ranges.size())) {
    check_size(w_scale, 0, width, kOp, "w_scale", "the rows of weight");
    return scales;
  }
  own.clear();
  for (size_t i = 0; i < ranges.size(); ++i) {
    VCC_CHECK(ranges[i] >= 0 && ranges[i] <= width - static_cast<int64_t>(own.size()), kOp,
              ": ranges must add up to the ", width, " rows of weight");
    own.insert(own.end(), ranges[i], scales[i]);
  }
  VCC_CHECK(static_cast<int64_t>(own.size()) == width, kOp, ": ranges must add up to the ", width,
            " rows of weight");
  return own.data();
}

void check_blocks(const Tensor& w_scale, int64_t width, int64_t depth) {
  check_size(w_scale, 0, blocks_in(width), kOp, "w_scale", "blocks of rows of weight");
  check_size(w_scale, 1, blocks_in(depth), kOp, "w_scale", "blocks of columns of weight");
}

void run(const ScaledArgs& a, Dtype dtype) {
  thread_local std::vector<Columns> items;
  items.clear();
  const int64_t step = a.tokens <= kFewRows ? kItemColumns : kPanelColumns;
  for (int64_t column = 0; column < a.width; column += step) {
    items.push_back({column, std::min(step, a.width - column)});
  }
  for_items(items, a.tokens * a.width * a.depth < kSerialWork, [&](const Columns& item) {
    thread_local Scratch own;
    float* scratch = own.floats(kernels().scaled_scratch(a, item.columns));
    kernels().scaled[dtype](a, item.column, item.columns, scratch);
  });
}

}  // namespace

Tensor scaled_linear(const Tensor& x, const Tensor& weight, const Tensor& x_scale,
                     const Tensor& w_scale, std::optional<Tensor> bias, std::vector<int64_t> ranges,
                     ScalarType dtype) {
  check_type(x, kFp8, kOp, "x");
  check_layout(weight, 2, kOp, "weight");
  check_type(weight, kFp8, kOp, "weight");
  VCC_CHECK(weight.is_contiguous(), kOp, ": weight must be contiguous");
  const Rows rows = rows_of(x, kOp, "x");
  check_size(weight, 1, rows.width, kOp, "weight", "the columns of x");
  VCC_CHECK(w_scale.dim() == 1 || w_scale.dim() == 2, kOp,
            ": w_scale must have 1 or 2 dimensions, it has ", w_scale.dim());
  const bool blocks = w_scale.dim() == 2;
  const UnscaleArgs u = rows_with_scales(rows, x_scale, blocks);
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() = weight.size(0);
  const Tensor out = torch::stable::new_empty(x, sizes, dtype);
  const Dtype kind = dtype_of(out, kOp, "the result");
  thread_local std::vector<float> factors;
  ScaledArgs a{};
  a.weight = static_cast<const uint8_t*>(weight.const_data_ptr());
  a.tokens = rows.count, a.width = weight.size(0), a.depth = rows.width;
  if (blocks) {
    check_blocks(w_scale, a.width, a.depth);
    a.blocks = scales_at(w_scale, "w_scale");
  } else {
    a.scale = factors_of(w_scale, ranges, a.width, factors);
  }
  if (bias) {
    check_layout(*bias, 1, kOp, "bias");
    check_same_dtype(*bias, out, kOp, "bias", "the result");
    check_size(*bias, 0, a.width, kOp, "bias", "the rows of weight");
    a.bias = bias->const_data_ptr();
  }
  thread_local Scratch wide;
  UnscaleArgs given = u;
  given.y = wide.floats(a.tokens * a.depth);
  for_rows(a.tokens, a.depth,
           [&](int64_t begin, int64_t end) { kernels().unscale(given, begin, end); });
  a.x = given.y, a.out = out.mutable_data_ptr();
  run(a, kind);
  return out;
}

}  // namespace vcc
