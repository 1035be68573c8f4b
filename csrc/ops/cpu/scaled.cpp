// Products with fp8 weights. Few rows: weights are read in place, the work is memory traffic. Many:
// they are decoded once into fp32 panels, the work is arithmetic. All sums are fp32.
#include "entries.h"
#include "gemm.h"

namespace vcc {
namespace VCC_ISA {
namespace {

constexpr int kRowGroup = 4, kColumnGroup = kWidth == 16 ? 4 : 2;

const Fp8* weight_row(const ScaledArgs& a, int64_t column) {
  return reinterpret_cast<const Fp8*>(a.weight) + column * a.depth;
}

float block_scale(const ScaledArgs& a, int64_t column, int64_t depth) {
  const int64_t across = (a.depth + kScaleBlock - 1) / kScaleBlock;
  return a.blocks[column / kScaleBlock * across + depth / kScaleBlock];
}

// Values of the summed dimension that have one factor.
int64_t stretch(const ScaledArgs& a) { return a.scale ? a.depth : kScaleBlock; }

// sum[i][j] = row i times weight row j over [begin, end), Rows and Columns of them.
template <int Rows, int Columns>
VCC_INLINE void dot_stretch(const float* const* x, const Fp8* const* w, int64_t begin, int64_t end,
                            VecF (*sum)[Columns]) {
  const int64_t whole = begin + (end - begin) / kWidth * kWidth;
  for (int64_t d = begin; d < whole; d += kWidth) {
    VecF rows[Rows];
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) rows[i] = load(x[i] + d);
#pragma GCC unroll 4
    for (int j = 0; j < Columns; ++j) {
      const VecF weight = load(w[j] + d);
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i) sum[i][j] += rows[i] * weight;
    }
  }
  if (const int rest = static_cast<int>(end - whole)) {
    for (int j = 0; j < Columns; ++j) {
      const VecF weight = load_part(w[j] + whole, rest);
      for (int i = 0; i < Rows; ++i) sum[i][j] += load_part(x[i] + whole, rest) * weight;
    }
  }
}

// c[i * stride + j] for Rows rows and Columns columns, block factors on the way.
template <int Rows, int Columns>
void dots(const ScaledArgs& a, int64_t row, int64_t column, float* c, int64_t stride) {
  const float* x[Rows];
  const Fp8* w[Columns];
  for (int i = 0; i < Rows; ++i) x[i] = a.x + (row + i) * a.depth;
  for (int j = 0; j < Columns; ++j) w[j] = weight_row(a, column + j);
  VecF total[Rows][Columns] = {};
  for (int64_t begin = 0; begin < a.depth; begin += stretch(a)) {
    const int64_t next = begin + stretch(a), end = next < a.depth ? next : a.depth;
    VecF sum[Rows][Columns] = {};
    dot_stretch<Rows, Columns>(x, w, begin, end, sum);
    for (int j = 0; j < Columns; ++j) {
      const float factor = a.scale ? 1.0f : block_scale(a, column + j, begin);
      for (int i = 0; i < Rows; ++i) total[i][j] += sum[i][j] * factor;
    }
  }
  for (int i = 0; i < Rows; ++i) {
    for (int j = 0; j < Columns; ++j) c[i * stride + j] = sum_lanes(total[i][j]);
  }
}

template <int Rows>
void dot_columns(const ScaledArgs& a, int64_t row, int64_t column, int64_t columns, float* c,
                 int64_t stride) {
  int64_t j = 0;
  for (; j + kColumnGroup <= columns; j += kColumnGroup) {
    dots<Rows, kColumnGroup>(a, row, column + j, c + j, stride);
  }
  for (; j < columns; ++j) dots<Rows, 1>(a, row, column + j, c + j, stride);
}

void dot_rows(const ScaledArgs& a, int64_t column, int64_t columns, float* c) {
  int64_t row = 0;
  for (; row + kRowGroup <= a.tokens; row += kRowGroup) {
    dot_columns<kRowGroup>(a, row, column, columns, c + row * columns, columns);
  }
  for (; row < a.tokens; ++row) {
    dot_columns<1>(a, row, column, columns, c + row * columns, columns);
  }
}

// Weights of the columns over [begin, end) as [depth][kPanelColumns], block factors multiplied in;
// columns that do not exist are zero.
void pack(const ScaledArgs& a, int64_t column, int64_t columns, int64_t begin, int64_t end,
          float* panel) {
  for (int64_t first = 0; first < kPanelColumns; first += kWidth) {
    for (int64_t d = begin; d < end; d += kWidth) {
      const int64_t left = end - d;
      VecF square[kWidth];
      for (int j = 0; j < kWidth; ++j) {
        square[j] = VecF{};
        if (first + j >= columns) continue;
        const Fp8* from = weight_row(a, column + first + j) + d;
        square[j] = left >= kWidth ? load(from) : load_part(from, static_cast<int>(left));
        if (!a.scale) square[j] *= block_scale(a, column + first + j, d);
      }
      transpose(square);
      float* to = panel + (d - begin) * kPanelColumns + first;
      const int64_t rows = left < kWidth ? left : kWidth;
      for (int64_t j = 0; j < rows; ++j) store(to + j * kPanelColumns, square[j]);
    }
  }
}

// c [tokens][kPanelColumns], the columns in panels one depth after the other.
void multiply(const ScaledArgs& a, int64_t column, int64_t columns, float* c, float* panel,
              float* ones) {
  for (int64_t i = 0; i < a.tokens; ++i) ones[i] = 1.0f;
  for (int64_t begin = 0; begin < a.depth; begin += kPanelDepth) {
    const int64_t end = begin + kPanelDepth < a.depth ? begin + kPanelDepth : a.depth;
    pack(a, column, columns, begin, end, panel);
    gemm({a.x + begin, panel, c, begin ? ones : nullptr, a.depth, kPanelColumns, kPanelColumns,
          end - begin},
         0, a.tokens, kPanelColumns / kWidth);
  }
}

// out = c * scale + bias, rounded.
template <class T>
void finish(const ScaledArgs& a, int64_t column, int64_t columns, const float* c, int64_t stride) {
  const T* bias = static_cast<const T*>(a.bias);
  for (int64_t i = 0; i < a.tokens; ++i) {
    T* out = static_cast<T*>(a.out) + i * a.width + column;
    for (int64_t j = 0; j < columns; ++j) {
      float value = c[i * stride + j];
      if (a.scale) value *= a.scale[column + j];
      if (bias) value += to_float(bias[column + j]);
      put(out + j, value);
    }
  }
}

}  // namespace

void unscale(const UnscaleArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const Fp8* x = reinterpret_cast<const Fp8*>(a.x) + row * a.x_stride;
    const float* scales = a.scales + row * a.scale_stride;
    for (int64_t d = 0; d < a.dim; d += a.block) {
      const int64_t last = d + a.block < a.dim ? d + a.block : a.dim;
      const float scale = scales[d / a.block];
      float* y = a.y + row * a.dim;
      int64_t i = d;
      for (; i + kWidth <= last; i += kWidth) store(y + i, load(x + i) * scale);
      for (; i < last; ++i) y[i] = to_float(x[i]) * scale;
    }
  }
}

int64_t scaled_scratch(const ScaledArgs& a, int64_t columns) {
  if (a.tokens <= kFewRows) return a.tokens * columns;
  return a.tokens * (kPanelColumns + 1) + kPanelColumns * kPanelDepth + kWidth;
}

template <class T>
void scaled(const ScaledArgs& a, int64_t column, int64_t columns, float* scratch) {
  if (a.tokens <= kFewRows) {
    dot_rows(a, column, columns, scratch);
    return finish<T>(a, column, columns, scratch, columns);
  }
  float* panel = scratch + a.tokens * kPanelColumns;
  for (int64_t at = 0; at < columns; at += kPanelColumns) {
    const int64_t some = columns - at < kPanelColumns ? columns - at : kPanelColumns;
    multiply(a, column + at, some, scratch, panel, panel + kPanelColumns * kPanelDepth);
    finish<T>(a, column + at, some, scratch, kPanelColumns);
  }
}

template void scaled<float>(const ScaledArgs&, int64_t, int64_t, float*);
template void scaled<BF16>(const ScaledArgs&, int64_t, int64_t, float*);

}  // namespace VCC_ISA
}  // namespace vcc
