// Root-mean-square norms of rows: read once, kept in registers (kCount chunks a thread), written
// once.
#pragma once

#include "quant.cuh"

namespace vcc {

template <class T>
struct Norm {
  const T* x;
  const T* residual;  // where kAdd
  const T* weight;
  const float* scale;  // where kStatic
  T* out;              // where not quantised
  fp8* quantised;
  float* scales;  // where kRow or kBlock
  T* total;       // where kAdd
  int rows, width, row_threads;
  int64_t x_stride, residual_stride;  // values between rows
  float eps, offset, least;
};

template <Quant kQuant, bool kAdd, class T>
__device__ inline bool is_aligned(const Norm<T>& n) {
  bool fits = n.width % kValues<T> == 0 && rows_aligned(n.x, n.x_stride) && is_aligned(n.weight);
  if (kAdd) fits = fits && rows_aligned(n.residual, n.residual_stride) && is_aligned(n.total);
  if (kQuant == Quant::kNone) return fits && is_aligned(n.out);
  return fits && is_aligned(n.quantised, kValues<T>);
}

// x + residual, rounded as the sum that is handed on.
template <class T>
__device__ inline Chunk added(const Chunk& x, const Chunk& residual) {
  float left[kValues<T>], right[kValues<T>];
  unpack(T{}, x, left);
  unpack(T{}, residual, right);
#pragma unroll
  for (int i = 0; i < kValues<T>; ++i) left[i] += right[i];
  Chunk sum;
  pack(T{}, left, sum);
  return sum;
}

template <class T>
__device__ inline float squares(const Chunk& chunk) {
  float values[kValues<T>], sum = 0.0f;
  unpack(T{}, chunk, values);
#pragma unroll
  for (const float value : values) sum += value * value;
  return sum;
}

template <class T>
__device__ inline Chunk scaled(const Chunk& x, const Chunk& weight, float factor, float offset) {
  float values[kValues<T>], gain[kValues<T>];
  unpack(T{}, x, values);
  unpack(T{}, weight, gain);
#pragma unroll
  for (int i = 0; i < kValues<T>; ++i) values[i] = values[i] * factor * (gain[i] + offset);
  Chunk result;
  pack(T{}, values, result);
  return result;
}

// What becomes of a normed chunk.
template <Quant kQuant, bool kAligned, class T>
__device__ inline void put(const Norm<T>& n, const Chunk& chunk, const Divider& divide, int64_t row,
                           int at, int left) {
  const int64_t home = row * n.width;
  if constexpr (kQuant == Quant::kNone) {
    store<kAligned>(n.out + home + at, chunk, left);
  } else if constexpr (kQuant == Quant::kBlock) {
    float* scales = n.scales + row * (n.width / kBlockValues);
    store_block<kAligned, T>(n.quantised + home, scales, chunk, at, left, n.least);
  } else {
    store_quantised<kAligned, T>(n.quantised + home + at, chunk, divide, left);
  }
}

template <class T>
__device__ inline float factor_of(const Norm<T>& n, float sum) {
  const float mean = over_row<Sum>(sum, n.row_threads) / static_cast<float>(n.width);
  return rsqrtf(mean + n.eps);
}

// The scale of a row, which one thread writes; `most` is over this thread's chunks.
template <Quant kQuant, class T>
__device__ inline float row_scale(const Norm<T>& n, const Place& place, float most) {
  if constexpr (kQuant == Quant::kStatic) return read_value(n.scale);
  if constexpr (kQuant != Quant::kRow) return 1.0f;
  const float scale = scale_of(over_row<Most>(most, n.row_threads), n.least);
  if (place.there && place.thread == 0) write_value(n.scales + place.row, scale);
  return scale;
}

template <Quant kQuant, bool kAdd, int kCount, class T>
__device__ inline void norm_kept(const Norm<T>& n) {
  // Read beside the row, so that nothing waits for them later, where registers allow.
  constexpr bool kWeightEarly = kCount <= 2 || (sizeof(T) == 4 && !kAdd);
  constexpr bool kResidualEarly = kAdd && kCount <= 2;
  const Place place = place_of(n.rows, n.row_threads);
  const T* x = n.x + place.row * n.x_stride;
  const T* residual = kAdd ? n.residual + place.row * n.residual_stride : nullptr;
  Chunk part[kCount], gain[kCount], other[kCount];
  const int width = place.there ? n.width : 0;
  int at[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    at[i] = (place.thread + i * n.row_threads) * kValues<T>;
    part[i] = load<true, true>(x + at[i], width - at[i]);
    if (kResidualEarly) other[i] = load<true, true>(residual + at[i], width - at[i]);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (kWeightEarly) gain[i] = load<true, false>(n.weight + at[i], width - at[i]);
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (kAdd) {
      if (!kResidualEarly) other[i] = load<true, true>(residual + at[i], width - at[i]);
      part[i] = added<T>(part[i], other[i]);
      store<true>(n.total + place.row * n.width + at[i], part[i], width - at[i]);
    }
    sum += squares<T>(part[i]);
    keep_packed(part[i]);
  }
  const float factor = factor_of(n, sum);
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (!kWeightEarly) gain[i] = load<true, false>(n.weight + at[i], width - at[i]);
    part[i] = scaled<T>(part[i], gain[i], factor, n.offset);
    if constexpr (kQuant == Quant::kBlock) {  // at once, which takes fewer registers
      put<kQuant, true>(n, part[i], Divider(1.0f), place.row, at[i], width - at[i]);
    }
    if constexpr (kQuant == Quant::kRow) {
      keep_packed(part[i]);
      most = larger(most, at[i] < width ? most_of<T>(part[i]) : 0.0f);
    }
  }
  if constexpr (kQuant == Quant::kBlock) return;
  const Divider divide(row_scale<kQuant>(n, place, most));
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    put<kQuant, true>(n, part[i], divide, place.row, at[i], width - at[i]);
}

// The same of rows that are not whole chunks: value by value, and read again instead of kept.
template <Quant kQuant, bool kAdd, class T>
__device__ inline void norm_again(const Norm<T>& n) {
  const Place place = place_of(n.rows, n.row_threads);
  const int step = n.row_threads * kValues<T>, first = place.thread * kValues<T>;
  const int end = (n.width + step - 1) / step * step;  // the same number of turns for all
  const int width = place.there ? n.width : 0;
  const T* x = n.x + place.row * n.x_stride;
  T* total = kAdd ? n.total + place.row * n.width : nullptr;
  float sum = 0.0f;
#pragma unroll 1
  for (int at = first; at < end; at += step) {
    Chunk part = load<false, false>(x + at, width - at);
    if constexpr (kAdd) {
      const T* residual = n.residual + place.row * n.residual_stride;
      part = added<T>(part, load<false, false>(residual + at, width - at));
      store<false>(total + at, part, width - at);
    }
    sum += squares<T>(part);
  }
  const float factor = factor_of(n, sum);
  const T* from = kAdd ? total : x;
  const auto normed = [&](int at) {
    const Chunk part = load<false, false>(from + at, width - at);
    return scaled<T>(part, load<false, false>(n.weight + at, width - at), factor, n.offset);
  };
  float most = 0.0f;
  if constexpr (kQuant == Quant::kRow) {
#pragma unroll 1
    for (int at = first; at < width; at += step) {
      // Behind the row's end there is zero times a weight of zero.
      most = larger(most, most_of<T>(normed(at)));
    }
  }
  const Divider divide(row_scale<kQuant>(n, place, most));
#pragma unroll 1
  for (int at = first; at < end; at += step) {
    put<kQuant, false>(n, normed(at), divide, place.row, at, width - at);
  }
}

template <Quant kQuant, bool kAdd, int kCount, class T>
__device__ inline void norm(const Norm<T>& n) {
  if (is_aligned<kQuant, kAdd>(n)) {
    norm_kept<kQuant, kAdd, kCount>(n);
  } else {
    norm_again<kQuant, kAdd>(n);
  }
}

}  // namespace vcc
