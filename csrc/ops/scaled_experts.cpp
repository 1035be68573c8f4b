// vcc::scaled_experts: checks, pairs of rows and experts in runs that fit a cache, and the work on
// torch's threads. Rows are quantised as in cpu/quant.cpp, products are those of cpu/scaled.cpp.
#include "ops.h"
#include "pairs.h"
#include "quant.h"

namespace vcc {
namespace {

constexpr const char* kOp = "scaled_experts";
// Pairs that are in memory at a time, and columns of a work item where rows are few.
constexpr int64_t kRunPairs = 256, kItemColumns = 32;

// Weights of all experts in fp8, and how their scales lie.
struct Matrix {
  const uint8_t* values;
  const float* scales;
  int64_t rows, columns;  // of an expert
  int64_t each;           // scales of an expert
  bool blocks;

  // Factors of the rows of one expert, for products that are not by block.
  const float* factors(int64_t expert, std::vector<float>& own) const {
    const float* mine = scales + expert * each;
    if (each == rows) return mine;
    const size_t first = own.size();
    for (int64_t i = 0; i < each; ++i) own.insert(own.end(), rows / each, mine[i]);
    return own.data() + first;
  }
};

// How activations become fp8: by a given scale of each expert, or by row or block.
struct Moving {
  const float* given;  // null: made of the values
  int64_t block;       // values that share one
  float least;
};

// Pairs [begin, end) of one expert.
struct Part {
  int64_t expert, begin, end;
};

struct Item {
  int64_t part, column, columns;
};

int64_t blocks_in(int64_t size) { return (size + kScaleBlock - 1) / kScaleBlock; }

const float* floats_of(const Tensor& t, const char* name) {
  VCC_CHECK(t.is_cpu(), kOp, ": ", name, " must be on the CPU");
  check_type(t, ScalarType::Float, kOp, name);
  VCC_CHECK(t.is_contiguous(), kOp, ": ", name, " must be contiguous");
  return static_cast<const float*>(t.const_data_ptr());
}

Matrix matrix_of(const Tensor& t, const Tensor& scale, int64_t parts, const char* name,
                 const char* scale_name) {
  check_layout(t, 3, kOp, name);
  check_type(t, kFp8, kOp, name);
  VCC_CHECK(t.is_contiguous(), kOp, ": ", name, " must be contiguous");
  VCC_CHECK(scale.dim() == 2 || scale.dim() == 3, kOp, ": ", scale_name,
            " must have 2 or 3 dimensions, it has ", scale.dim());
  const bool blocks = scale.dim() == 3;
  Matrix m{static_cast<const uint8_t*>(t.const_data_ptr()),
           floats_of(scale, scale_name),
           t.size(1),
           t.size(2),
           scale.size(1),
           blocks};
  check_size(scale, 0, t.size(0), kOp, scale_name, "the experts");
  if (blocks) {
    check_size(scale, 1, blocks_in(m.rows), kOp, scale_name, "blocks of rows of the weight");
    check_size(scale, 2, blocks_in(m.columns), kOp, scale_name, "blocks of columns of the weight");
    m.each = scale.size(1) * scale.size(2);
  } else if (m.each != parts) {
    check_size(scale, 1, m.rows, kOp, scale_name, "the rows of the weight");
  }
  return m;
}

Moving moving_of(const std::optional<Tensor>& scale, const ExpertShape& s, int64_t width,
                 bool blocks, double least, const char* name) {
  Moving m{nullptr, blocks ? kScaleBlock : width, static_cast<float>(least)};
  if (scale) {
    VCC_CHECK(scale->numel() == s.experts, kOp, ": ", name, " must have a number for each of the ",
              s.experts, " experts, it has ", scale->numel());
    m.given = floats_of(*scale, name), m.block = width;
  }
  VCC_CHECK(scale || !blocks || width % kScaleBlock == 0, kOp, ": rows of ", width,
            " values are no whole blocks of ", int64_t{kScaleBlock});
  return m;
}

// One row of `width` values through fp8, into fp32.
void through_fp8(const Moving& m, const void* x, float* y, int64_t width, int64_t expert,
                 Dtype dtype) {
  thread_local Scratch own;
  const int64_t scales = m.given ? 0 : width / std::max<int64_t>(1, m.block);
  float* made = own.floats(scales + (width + 3) / 4);
  QuantArgs q{};
  q.x = x, q.q = reinterpret_cast<uint8_t*>(made + scales), q.scales = made;
  q.scale = m.given ? m.given + expert : nullptr;
  q.dim = width, q.block = m.block, q.least = m.least;
  kernels().quantise[dtype](q, 0, 1);
  kernels().unscale({q.q, q.scale ? q.scale : made, y, width, 0, m.block, 0}, 0, 1);
}

// out [pairs][rows of the matrix], of rows that are fp32 already and begin with pair `first`.
void multiply(const Matrix& m, const std::vector<Part>& parts, const float* x, float* out,
              int64_t first) {
  thread_local std::vector<ScaledArgs> calls;
  thread_local std::vector<Item> items;
  thread_local std::vector<float> factors;
  calls.clear(), items.clear(), factors.clear();
  if (!m.blocks && m.each != m.rows) factors.reserve(parts.size() * m.rows);  // calls point into it
  int64_t pairs = 0;
  for (const Part& part : parts) {
    ScaledArgs a{};
    a.x = x + (part.begin - first) * m.columns, a.out = out + (part.begin - first) * m.rows;
    a.weight = m.values + part.expert * m.rows * m.columns;
    a.tokens = part.end - part.begin, a.width = m.rows, a.depth = m.columns;
    if (m.blocks) a.blocks = m.scales + part.expert * m.each;
    if (!m.blocks) a.scale = m.factors(part.expert, factors);
    const int64_t step = a.tokens <= kFewRows ? kItemColumns : kPanelColumns;
    for (int64_t column = 0; column < a.width; column += step) {
      const int64_t call = static_cast<int64_t>(calls.size());
      items.push_back({call, column, std::min(step, a.width - column)});
    }
    calls.push_back(a), pairs += a.tokens;
  }
  const std::vector<ScaledArgs>& all = calls;  // of this thread, for those that help
  for_items(items, pairs * m.rows * m.columns < kSerialWork, [&](const Item& item) {
    thread_local Scratch own;
    const ScaledArgs& a = all[item.part];
    float* scratch = own.floats(kernels().scaled_scratch(a, item.columns));
    kernels().scaled[kFloat32](a, item.column, item.columns, scratch);
  });
}

struct Call {
  const char* x;
  int64_t x_stride;  // bytes
  Dtype dtype;
  ExpertShape shape;
  Matrix gate_up, down;
  Moving outer, inner;
  const Pairs& pairs;
  float* sums;  // [tokens][hidden]
};

void run_parts(const Call& c, const std::vector<Part>& parts) {
  const int64_t hidden = c.shape.hidden, width = c.shape.width;
  const int64_t first = parts.front().begin, count = parts.back().end - first;
  thread_local std::vector<int64_t> experts;
  experts.clear();
  for (const Part& part : parts) experts.insert(experts.end(), part.end - part.begin, part.expert);
  thread_local Scratch memory;
  float* rows =
      memory.floats(count * std::max(hidden, width) + count * std::max(hidden, 2 * width));
  float* products = rows + count * std::max(hidden, width);
  const int64_t* owner = experts.data();
  for_rows(count, hidden, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const char* x = c.x + c.pairs.token[first + i] * c.x_stride;
      through_fp8(c.outer, x, rows + i * hidden, hidden, owner[i], c.dtype);
    }
  });
  multiply(c.gate_up, parts, rows, products, first);
  for_rows(count, 2 * width, [&](int64_t begin, int64_t end) {
    thread_local Scratch own;
    float* joined = own.floats(width);
    for (int64_t i = begin; i < end; ++i) {
      kernels().gate_row[c.dtype](products + i * 2 * width, joined, width);
      through_fp8(c.inner, joined, rows + i * width, width, owner[i], c.dtype);
    }
  });
  multiply(c.down, parts, rows, products, first);
  // By columns, so that the rows of several experts are added in order.
  for_rows(hidden, count, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      float* sum = c.sums + c.pairs.token[first + i] * hidden + begin;
      const float* x = products + i * hidden + begin;
      kernels().add_row(sum, x, c.pairs.weight[first + i], end - begin);
    }
  });
}

void run(const Call& c) {
  thread_local std::vector<Part> parts;
  const std::vector<int64_t>& first = c.pairs.first;
  parts.clear();
  int64_t held = 0;
  for (int64_t expert = 0; expert < c.shape.experts; ++expert) {
    for (int64_t begin = first[expert]; begin < first[expert + 1];) {
      const int64_t end = std::min(first[expert + 1], begin + kRunPairs - held);
      parts.push_back({expert, begin, end});
      held += end - begin, begin = end;
      if (held == kRunPairs) run_parts(c, parts), parts.clear(), held = 0;
    }
  }
  if (!parts.empty()) run_parts(c, parts);
}

}  // namespace

Tensor scaled_experts(const Tensor& x, const Tensor& gate_up, const Tensor& down,
                      const Tensor& gate_up_scale, const Tensor& down_scale,
                      std::optional<Tensor> x_scale, std::optional<Tensor> inner_scale,
                      const Tensor& weights, const Tensor& ids, double least) {
  const Dtype dtype = dtype_of(x, kOp, "x");
  const ExpertShape s = expert_shape(x, gate_up, down, weights, ids, kOp);
  VCC_CHECK(s.hidden > 0 && s.width > 0, kOp, ": rows of ", s.hidden, " values and experts of ",
            s.width, " have no scale");
  const Matrix outer = matrix_of(gate_up, gate_up_scale, 2, "gate_up", "gate_up_scale");
  const Matrix inner = matrix_of(down, down_scale, 1, "down", "down_scale");
  VCC_CHECK(outer.blocks == inner.blocks, kOp,
            ": gate_up_scale and down_scale must both be of blocks, or neither");
  VCC_CHECK(x_scale.has_value() == inner_scale.has_value(), kOp,
            ": x_scale and inner_scale must both be given, or neither");
  const Moving by_x = moving_of(x_scale, s, s.hidden, outer.blocks, least, "x_scale");
  const Moving by_inner = moving_of(inner_scale, s, s.width, inner.blocks, least, "inner_scale");
  const Tensor out = torch::stable::new_empty(x, x.sizes());
  thread_local Pairs pairs;
  pairs.sort(weights, ids, s.experts, kOp);
  thread_local Scratch sums;
  const int64_t item = static_cast<int64_t>(x.element_size());
  const Call call{static_cast<const char*>(x.const_data_ptr()),
                  x.stride(0) * item,
                  dtype,
                  s,
                  outer,
                  inner,
                  by_x,
                  by_inner,
                  pairs,
                  sums.floats(s.tokens * s.hidden)};
  std::fill_n(call.sums, s.tokens * s.hidden, 0.0f);
  run(call);
  char* to = static_cast<char*>(out.mutable_data_ptr());
  for_rows(s.tokens, s.hidden, [&](int64_t begin, int64_t end) {
    kernels().round_row[dtype](call.sums + begin * s.hidden, to + begin * s.hidden * item,
                               (end - begin) * s.hidden);
  });
  return out;
}

}  // namespace vcc
