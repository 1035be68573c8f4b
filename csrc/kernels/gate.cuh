// act(x[:width]) * x[width:] of rows of 2 * width values, products in fp32, rounded once.
#pragma once

#include "quant.cuh"

namespace vcc {

struct Silu {
  __device__ float operator()(float x) const { return x / (1.0f + expf(-x)); }
};

struct Gelu {
  bool tanh;  // the form by the hyperbolic tangent, else by the error function
  __device__ float operator()(float x) const {
    if (!tanh) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    const float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return x / (1.0f + expf(-2.0f * inner));  // 1 + tanh(y) is 2 / (1 + exp(-2 y))
  }
};

template <class T>
struct Gated {
  const T* x;
  const float* scale;  // where kStatic
  T* out;              // where not quantised
  fp8* quantised;
  float* scales;  // where kRow or kBlock
  int rows, width;
  int row_threads;  // where kRow
  int row_blocks;   // blocks of threads that a row takes; elsewhere
  int64_t x_stride;
  float least;
};

template <Quant kQuant, class T>
__device__ inline bool is_aligned(const Gated<T>& g) {
  const bool fits = g.width % kValues<T> == 0 && rows_aligned(g.x, g.x_stride);
  if (kQuant == Quant::kNone) return fits && is_aligned(g.out);
  return fits && is_aligned(g.quantised, kValues<T>);
}

template <class T, class Act>
__device__ inline Chunk gated(const Chunk& gate, const Chunk& up, const Act& act) {
  float values[kValues<T>], factors[kValues<T>];
  unpack(T{}, gate, values);
  unpack(T{}, up, factors);
#pragma unroll
  for (int i = 0; i < kValues<T>; ++i) values[i] = act(values[i]) * factors[i];
  Chunk result;
  pack(T{}, values, result);
  return result;
}

constexpr int kTogether = 2;  // chunks of gate and of up that a thread has under way

// A part of a row for each block: nothing is shared by a whole row.
template <Quant kQuant, bool kAligned, class T, class Act>
__device__ inline void gate_part(const Gated<T>& g, const Act& act) {
  const int64_t row = blockIdx.x / g.row_blocks;
  const int first = blockIdx.x % g.row_blocks * kTogether * blockDim.x + threadIdx.x;
  const T* x = g.x + row * g.x_stride;
  Chunk gate[kTogether], up[kTogether];
  int at[kTogether], left[kTogether];
#pragma unroll
  for (int i = 0; i < kTogether; ++i) {
    at[i] = (first + i * static_cast<int>(blockDim.x)) * kValues<T>;
    left[i] = g.width - at[i];
    gate[i] = load<kAligned, true>(x + at[i], left[i]);
    up[i] = load<kAligned, true>(x + g.width + at[i], left[i]);
  }
#pragma unroll
  for (int i = 0; i < kTogether; ++i) {
    const Chunk result = gated<T>(gate[i], up[i], act);
    const int64_t home = row * g.width;
    if constexpr (kQuant == Quant::kNone) {
      store<kAligned>(g.out + home + at[i], result, left[i]);
    } else if constexpr (kQuant == Quant::kStatic) {
      const Divider divide(read_value(g.scale));
      store_quantised<kAligned, T>(g.quantised + home + at[i], result, divide, left[i]);
    } else {
      float* scales = g.scales + row * (g.width / kBlockValues);
      store_block<kAligned, T>(g.quantised + home, scales, result, at[i], left[i], g.least);
    }
  }
}

template <class T>
__device__ inline float row_scale(const Gated<T>& g, const Place& place, float most) {
  const float scale = scale_of(over_row<Most>(most, g.row_threads), g.least);
  if (place.there && place.thread == 0) write_value(g.scales + place.row, scale);
  return scale;
}

// A scale a row: its results stay in registers until the largest is known.
template <int kCount, class T, class Act>
__device__ inline void gate_kept(const Gated<T>& g, const Act& act) {
  const Place place = place_of(g.rows, g.row_threads);
  const T* x = g.x + place.row * g.x_stride;
  Chunk part[kCount], up[kCount];
  const int width = place.there ? g.width : 0;
  int at[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    at[i] = (place.thread + i * g.row_threads) * kValues<T>;
    part[i] = load<true, true>(x + at[i], width - at[i]);
    up[i] = load<true, true>(x + g.width + at[i], width - at[i]);
  }
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    part[i] = gated<T>(part[i], up[i], act);
    keep_packed(part[i]);
    most = larger(most, at[i] < width ? most_of<T>(part[i]) : 0.0f);
  }
  const Divider divide(row_scale(g, place, most));
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    fp8* to = g.quantised + place.row * g.width + at[i];
    store_quantised<true, T>(to, part[i], divide, width - at[i]);
  }
}

// The same of rows that are not whole chunks: computed twice instead of kept.
template <class T, class Act>
__device__ inline void gate_again(const Gated<T>& g, const Act& act) {
  const Place place = place_of(g.rows, g.row_threads);
  const int step = g.row_threads * kValues<T>, first = place.thread * kValues<T>;
  const int width = place.there ? g.width : 0;
  const T* x = g.x + place.row * g.x_stride;
  const auto result = [&](int at) {
    const Chunk gate = load<false, false>(x + at, width - at);
    return gated<T>(gate, load<false, false>(x + g.width + at, width - at), act);
  };
  float most = 0.0f;
#pragma unroll 1
  for (int at = first; at < width; at += step) most = larger(most, most_of<T>(result(at)));
  const Divider divide(row_scale(g, place, most));
#pragma unroll 1
  for (int at = first; at < width; at += step) {
    fp8* to = g.quantised + place.row * g.width + at;
    store_quantised<false, T>(to, result(at), divide, width - at);
  }
}

template <Quant kQuant, int kCount = 1, class T, class Act>
__device__ inline void gate(const Gated<T>& g, const Act& act) {
  const bool fits = is_aligned<kQuant>(g);
  if constexpr (kQuant == Quant::kRow) {
    fits ? gate_kept<kCount>(g, act) : gate_again(g, act);
  } else {
    fits ? gate_part<kQuant, true>(g, act) : gate_part<kQuant, false>(g, act);
  }
}

}  // namespace vcc
