// Root-mean-square norms of rows: read once, kept in registers (kCount chunks a thread), written
// once.
#pragma once

#include "quant.cuh"
#include "scaled.cuh"
#include "squares.cuh"

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
  uint32_t odd = place_bits(n.x) | place_bits(n.weight) | row_bits<T>(n.width | n.x_stride);
  if (kAdd) odd |= place_bits(n.residual) | place_bits(n.total) | row_bits<T>(n.residual_stride);
  odd |= kQuant == Quant::kNone ? place_bits(n.out) : place_bits(n.quantised) * sizeof(T);
  return odd % sizeof(Chunk) == 0;
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

// Of all chunks that the threads of a row keep. The matrix unit, which saves instructions, is not
// used for few rows: it answers late where it has not been used before.
template <int kCount, class T>
__device__ inline float row_squares(const Chunk (&part)[kCount], int row_threads,
                                    [[maybe_unused]] int rows) {
  float sum = 0.0f;
#ifndef VCC_KERNEL_HOST
  if constexpr (sizeof(T) == 2) {
    if (row_threads >= kWarp && rows > kFewRows) {
      sum = warp_squares<kCount>(T{}, part);
      return row_threads == kWarp ? __shfl_sync(kAll, sum, 0) : over_warps<Sum>(sum, row_threads);
    }
  }
#endif
#pragma unroll
  for (const Chunk& chunk : part) sum += squares<T>(chunk);
  return over_row<Sum>(sum, row_threads);
}

// What becomes of a normed chunk, which lies `ahead` values behind `home`; where kBlock, whole
// blocks, whose scale goes to `scale`.
template <Quant kQuant, bool kAligned, class T>
__device__ inline void put(const Norm<T>& n, const Chunk& chunk, const Divider& divide,
                           int64_t home, int ahead, int left, float* scale = nullptr) {
  if constexpr (kQuant == Quant::kNone) {
    store<kAligned>(n.out + home + ahead, chunk, left);
  } else if constexpr (kQuant == Quant::kBlock) {
    store_block<kAligned, T>(n.quantised + home + ahead, scale, chunk, left, n.least);
  } else {
    store_quantised<kAligned, T>(n.quantised + home + ahead, chunk, divide, left);
  }
}

template <class T>
__device__ inline float factor_of(const Norm<T>& n, float sum) {
  const float each = near_reciprocal(static_cast<float>(n.width));
  return rsqrtf(sum * each + n.eps);
}

// Division by the scale of a row: where kRow one thread writes it, and `most` is over this thread's
// chunks.
template <Quant kQuant, class T>
__device__ inline Divider row_divider(const Norm<T>& n, const Place& place, float given,
                                      float most) {
  if constexpr (kQuant != Quant::kRow) return Divider(given);
  const Scaling by = scaling_of(most_over_row(most, n.row_threads), n.least);
  if (place.there && place.thread == 0) write_value(n.scales + place.row, by.scale);
  return by.divide;
}

template <Quant kQuant, bool kAdd, int kCount, class T>
__device__ inline void norm_kept(const Norm<T>& n) {
  // Read beside the row, so that nothing waits for them later, where registers allow.
  constexpr bool kWeightEarly = sizeof(T) == 2 || !kAdd, kResidualEarly = sizeof(T) == 2;
  constexpr int kApart = kWarp * kValues<T>;
  const Place place = place_of(n.rows, n.row_threads);
  const int first = first_chunk<kCount>(place.thread) * kValues<T>;
  const int left = (place.there ? n.width : 0) - first;
  const T* x = n.x + place.row * n.x_stride + first;
  const T* residual = kAdd ? n.residual + place.row * n.residual_stride + first : nullptr;
  const T* weight = n.weight + first;
  const int64_t home = place.row * n.width + first;
  const float given = kQuant == Quant::kStatic ? read_value(n.scale) : 1.0f;
  Chunk part[kCount], gain[kCount], other[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int at = i * kApart;
    part[i] = load<true, true>(x + at, left - at);
    if (kAdd && kResidualEarly) other[i] = load<true, true>(residual + at, left - at);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (kWeightEarly) gain[i] = load<true, false>(weight + i * kApart, left - i * kApart);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int at = i * kApart;
    if constexpr (kAdd) {
      if (!kResidualEarly) other[i] = load<true, true>(residual + at, left - at);
      part[i] = added<T>(part[i], other[i]);
      store<true>(n.total + home + at, part[i], left - at);
    }
    keep_packed(part[i]);
  }
  const float factor = factor_of(n, row_squares<kCount, T>(part, n.row_threads, n.rows));
  Largest<T> largest;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int at = i * kApart;
    if (!kWeightEarly) gain[i] = load<true, false>(weight + at, left - at);
    part[i] = scaled<T>(part[i], gain[i], factor, n.offset);
    if constexpr (kQuant == Quant::kRow || kQuant == Quant::kBlock) keep_packed(part[i]);
    if (kQuant == Quant::kRow && left > at) largest.add(part[i]);
  }
  if constexpr (kQuant == Quant::kBlock) {
    float* scales = scale_place(n.scales, place.row, first, n.rows);
    store_blocks(T{}, n.quantised + home, scales, n.rows, part, kApart, left, n.least);
    return;
  }
  const Divider divide = row_divider<kQuant>(n, place, given, largest.value());
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int at = i * kApart;
    put<kQuant, true>(n, part[i], divide, home, at, left - at);
  }
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
  const float factor = factor_of(n, over_row<Sum>(sum, n.row_threads));
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
  const float given = kQuant == Quant::kStatic ? read_value(n.scale) : 1.0f;
  const Divider divide = row_divider<kQuant>(n, place, given, most);
#pragma unroll 1
  for (int at = first; at < end; at += step) {
    put<kQuant, false>(n, normed(at), divide, place.row * n.width + at, 0, width - at,
                       scale_place(n.scales, place.row, at, n.rows));
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
