// The products of gated experts: rows of activations times rows of weights, both dense along the
// summed dimension, so neither is packed and the rows of one expert may lie anywhere.
#pragma once

#include "kernels.h"
#include "vec.h"

namespace vcc {
namespace VCC_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kDotRows = 6, kDotColumns = 4;
#else
constexpr int kDotRows = 4, kDotColumns = 2;  // 8 accumulators, and what is read, in 16 registers
#endif

// How elements of type T are multiplied and added: in fp32, kStep at a time.
template <class T>
struct Plain {
  using Element = T;
  using Vec = VecF;
  static constexpr int kStep = kWidth;
  static VCC_INLINE Vec read(const T* p) { return load(p); }
  static VCC_INLINE Vec read_part(const T* p, int n) { return load_part(p, n); }
  static VCC_INLINE void add(VecF& sum, Vec a, Vec w) { sum += a * w; }
};

#if defined(__AVX512BF16__)
// Products of pairs of bfloat16: twice the elements an instruction.
struct Pairs {
  using Element = BF16;
  using Vec = __m512bh;
  static constexpr int kStep = 2 * kWidth;
  static VCC_INLINE Vec read(const BF16* p) { return bits_of<Vec>(_mm512_loadu_si512(p)); }
  static VCC_INLINE Vec read_part(const BF16* p, int n) {
    return bits_of<Vec>(_mm512_maskz_loadu_epi16((1u << n) - 1, p));
  }
  static VCC_INLINE void add(VecF& sum, Vec a, Vec w) {
    sum = bits_of<VecF>(_mm512_dpbf16_ps(bits_of<__m512>(sum), a, w));
  }
};
#endif

// Rows of weights [columns][depth] that rows of activations are multiplied with.
template <class T>
struct Weights {
  const T* data;
  int64_t depth;
};

template <class Op, int Rows, int Columns>
VCC_INLINE void step(VecF (*sum)[Columns], const typename Op::Vec* a, const typename Op::Vec* w) {
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Columns; ++j) Op::add(sum[i][j], a[i], w[j]);
  }
}

// y[i * stride + j] = the sum of the lanes of sum[i][j], kWidth of them at a time
template <int Rows, int Columns>
VCC_INLINE void put_sums(const VecF (*sum)[Columns], float* y, int64_t stride) {
  constexpr int kCount = Rows * Columns;
#pragma GCC unroll 4
  for (int first = 0; first < kCount; first += kWidth) {
    VecF some[kWidth];
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
      const int at = first + i;
      some[i] = at < kCount ? sum[at / Columns][at % Columns] : VecF{};
    }
    float lanes[kWidth];
    store(lanes, sum_rows(some));
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
      const int at = first + i;
      if (at < kCount) y[at / Columns * stride + at % Columns] = lanes[i];
    }
  }
}

// y[i * stride + j] = rows[i] . row j of the weights
template <class Op, int Rows, int Columns>
VCC_INLINE void dots(const typename Op::Element* const* rows,
                     const Weights<typename Op::Element>& weights, float* y, int64_t stride) {
  const int64_t depth = weights.depth, whole = depth / Op::kStep * Op::kStep;
  const int rest = static_cast<int>(depth - whole);
  VecF sum[Rows][Columns] = {};
  typename Op::Vec a[Rows], w[Columns];
  for (int64_t d = 0; d < whole; d += Op::kStep) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) a[i] = Op::read(rows[i] + d);
#pragma GCC unroll 8
    for (int j = 0; j < Columns; ++j) w[j] = Op::read(weights.data + j * depth + d);
    step<Op, Rows, Columns>(sum, a, w);
  }
  if (rest) {
    for (int i = 0; i < Rows; ++i) a[i] = Op::read_part(rows[i] + whole, rest);
    for (int j = 0; j < Columns; ++j) w[j] = Op::read_part(weights.data + j * depth + whole, rest);
    step<Op, Rows, Columns>(sum, a, w);
  }
  put_sums<Rows, Columns>(sum, y, stride);
}

template <class Op, int Rows>
void dot_columns(const typename Op::Element* const* rows, Weights<typename Op::Element> weights,
                 int64_t columns, float* y, int64_t stride) {
  int64_t j = 0;
  for (; j + kDotColumns <= columns; j += kDotColumns) {
    dots<Op, Rows, kDotColumns>(rows, weights, y + j, stride);
    weights.data += kDotColumns * weights.depth;
  }
  for (; j < columns; ++j) {
    dots<Op, Rows, 1>(rows, weights, y + j, stride);
    weights.data += weights.depth;
  }
}

template <class Op, int Rows>
void dot_rest(const typename Op::Element* const* rows, int64_t count,
              const Weights<typename Op::Element>& weights, int64_t columns, float* y,
              int64_t stride) {
  if constexpr (Rows > 0) {
    if (count == Rows) return dot_columns<Op, Rows>(rows, weights, columns, y, stride);
    dot_rest<Op, Rows - 1>(rows, count, weights, columns, y, stride);
  }
}

VCC_INLINE VecF gate_times_up(VecF gate, VecF up) { return gate / (1.0f + exp(-gate)) * up; }

// y = silu(gate) * up, rounded to T.
template <class T>
void join_gate(const float* gate, const float* up, T* y, int64_t columns) {
  const int64_t whole = columns / kWidth * kWidth;
  for (int64_t i = 0; i < whole; i += kWidth) {
    store(y + i, gate_times_up(load(gate + i), load(up + i)));
  }
  if (const int rest = static_cast<int>(columns - whole)) {
    store_part(y + whole, gate_times_up(load_part(gate + whole, rest), load_part(up + whole, rest)),
               rest);
  }
}

template <class Op>
void up_of(const ExpertsArgs& e, const ExpertTile& t, float* scratch) {
  using T = typename Op::Element;
  const T* weights = static_cast<const T*>(e.gate_up) + t.expert * 2 * e.width * e.hidden;
  const Weights<T> gate{weights + t.column * e.hidden, e.hidden};
  const Weights<T> up{gate.data + e.width * e.hidden, e.hidden};
  float* gates = scratch;
  float* ups = scratch + kDotRows * t.columns;
  for (int64_t pair = t.begin; pair < t.end; pair += kDotRows) {
    const int64_t count = t.end - pair < kDotRows ? t.end - pair : kDotRows;
    const T* rows[kDotRows];
    for (int64_t i = 0; i < count; ++i) {
      rows[i] = static_cast<const T*>(e.x) + e.token[pair + i] * e.x_stride;
    }
    dot_rest<Op, kDotRows>(rows, count, gate, t.columns, gates, t.columns);
    dot_rest<Op, kDotRows>(rows, count, up, t.columns, ups, t.columns);
    for (int64_t i = 0; i < count; ++i) {
      T* y = static_cast<T*>(e.inner) + (pair + i) * e.width + t.column;
      join_gate(gates + i * t.columns, ups + i * t.columns, y, t.columns);
    }
  }
}

inline void add_scaled(float* sum, const float* x, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += factor * x[i];
}

// All rows of one expert, added to the sums [tokens][columns] of the columns of a tile.
template <class Op>
void add_expert(const ExpertsArgs& e, const ExpertTile& t, int64_t expert, float* sums, float* y) {
  using T = typename Op::Element;
  const T* weights = static_cast<const T*>(e.down) + (expert * e.hidden + t.column) * e.width;
  for (int64_t pair = e.first[expert]; pair < e.first[expert + 1]; pair += kDotRows) {
    const int64_t left = e.first[expert + 1] - pair, count = left < kDotRows ? left : kDotRows;
    const T* rows[kDotRows];
    for (int64_t i = 0; i < count; ++i) {
      rows[i] = static_cast<const T*>(e.inner) + (pair + i) * e.width;
    }
    dot_rest<Op, kDotRows>(rows, count, {weights, e.width}, t.columns, y, t.columns);
    for (int64_t i = 0; i < count; ++i) {
      add_scaled(sums + e.token[pair + i] * t.columns, y + i * t.columns, e.weight[pair + i],
                 t.columns);
    }
  }
}

template <class Op>
void down_of(const ExpertsArgs& e, const ExpertTile& t, float* scratch) {
  using T = typename Op::Element;
  float* y = scratch + e.tokens * t.columns;
  for (int64_t i = 0; i < e.tokens * t.columns; ++i) scratch[i] = 0;
  for (int64_t expert = 0; expert < e.experts; ++expert) add_expert<Op>(e, t, expert, scratch, y);
  for (int64_t token = 0; token < e.tokens; ++token) {
    T* out = static_cast<T*>(e.out) + token * e.hidden + t.column;
    for (int64_t i = 0; i < t.columns; ++i) put(out + i, scratch[token * t.columns + i]);
  }
}

}  // namespace
}  // namespace VCC_ISA
}  // namespace vcc
