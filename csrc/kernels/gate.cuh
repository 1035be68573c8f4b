// act(x[:width]) * x[width:] of rows of 2 * width values, products in fp32, rounded once.
#pragma once

#include "act.cuh"
#include "quant.cuh"

namespace vcc {

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
  uint32_t odd = place_bits(g.x) | row_bits<T>(g.width | g.x_stride);
  odd |= kQuant == Quant::kNone ? place_bits(g.out) : place_bits(g.quantised) * sizeof(T);
  return odd % sizeof(Chunk) == 0;
}

template <class T, class Act>
__device__ inline Chunk gated(const Chunk& gate, const Chunk& up, const Act& act) {
  float values[kValues<T>], factors[kValues<T>];
  unpack(T{}, gate, values);
  unpack(T{}, up, factors);
#pragma unroll
  for (int i = 0; i < kValues<T>; ++i)
    values[i] = act.template at<sizeof(T) == 4>(values[i]) * factors[i];
  Chunk result;
  pack(T{}, values, result);
  return result;
}

constexpr int kTogether = 2;  // chunks of gate and of up that a thread has, of many rows
constexpr int kLoaded = 4;    // the same that it has under way where it keeps a row's results

// What becomes of a result, which lies `ahead` values behind `home`; where kBlock, whole blocks,
// whose scale goes to `scale`.
template <Quant kQuant, bool kAligned, class T>
__device__ inline void put(const Gated<T>& g, const Chunk& chunk, const Divider& divide,
                           int64_t home, int ahead, int left, float* scale) {
  if constexpr (kQuant == Quant::kNone) {
    store<kAligned>(g.out + home + ahead, chunk, left);
  } else if constexpr (kQuant == Quant::kBlock) {
    store_block<kAligned, T>(g.quantised + home + ahead, scale, chunk, left, g.least);
  } else {
    store_quantised<kAligned, T>(g.quantised + home + ahead, chunk, divide, left);
  }
}

// A part of a row for each block: nothing is shared by a whole row.
template <Quant kQuant, bool kAligned, int kCount, class T, class Act>
__device__ inline void gate_part(const Gated<T>& g, const Act& act) {
  // Value by value, and one chunk after the other, where chunks are not whole.
  constexpr int kTurn = kAligned ? kCount : 1, kApart = kWarp * kValues<T>;
  const int row = blockIdx.x / static_cast<unsigned>(g.row_blocks);
  const int part = (blockIdx.x - row * g.row_blocks) * blockDim.x * kCount;
  const int first = (part + first_chunk<kCount>(threadIdx.x)) * kValues<T>;
  const float scale = kQuant == Quant::kStatic ? read_value(g.scale) : 1.0f;
  const T* x = g.x + row * g.x_stride + first;
  const int64_t home = int64_t{row} * g.width + first;
#pragma unroll 1
  for (int turn = 0; turn < kCount; turn += kTurn) {
    Chunk gate[kTurn], up[kTurn];
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      const int at = (turn + i) * kApart, left = g.width - first - at;
      gate[i] = load<kAligned, true>(x + at, left);
      up[i] = load<kAligned, true>(x + g.width + at, left);
    }
    const Divider divide(scale);
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      const int at = (turn + i) * kApart;
      gate[i] = gated<T>(gate[i], up[i], act);
      if constexpr (kQuant == Quant::kBlock && kAligned) {
        keep_packed(gate[i]);
      } else {
        put<kQuant, kAligned>(g, gate[i], divide, home, at, g.width - first - at,
                              scale_place(g.scales, row, first + at, g.rows));
      }
    }
    if constexpr (kQuant == Quant::kBlock && kAligned) {
      float* scales = scale_place(g.scales, row, first, g.rows);
      store_blocks(T{}, g.quantised + home, scales, g.rows, gate, kApart, g.width - first, g.least);
    }
  }
}

template <class T>
__device__ inline Divider row_divider(const Gated<T>& g, const Place& place, float most) {
  const Scaling by = scaling_of(most_over_row(most, g.row_threads), g.least);
  if (place.there && place.thread == 0) write_value(g.scales + place.row, by.scale);
  return by.divide;
}

// A scale a row: its results stay in registers until the largest is known.
template <int kCount, class T, class Act>
__device__ inline void gate_kept(const Gated<T>& g, const Act& act) {
  constexpr int kApart = kWarp * kValues<T>;
  const Place place = place_of(g.rows, g.row_threads);
  const int first = first_chunk<kCount>(place.thread) * kValues<T>;
  const int left = (place.there ? g.width : 0) - first;
  const T* x = g.x + place.row * g.x_stride + first;
  Chunk part[kCount], up[kLoaded];
  Largest<T> largest;
#pragma unroll
  for (int begin = 0; begin < kCount; begin += kLoaded) {
#pragma unroll
    for (int i = 0; i < kLoaded; ++i) {
      const int at = (begin + i) * kApart;
      part[begin + i] = load<true, true>(x + at, left - at);
      up[i] = load<true, true>(x + g.width + at, left - at);
    }
#pragma unroll
    for (int i = 0; i < kLoaded; ++i) {
      Chunk& result = part[begin + i];
      result = gated<T>(result, up[i], act);
      keep_packed(result);
      if (left > (begin + i) * kApart) largest.add(result);
    }
  }
  const Divider divide = row_divider(g, place, largest.value());
  fp8* to = g.quantised + place.row * g.width + first;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    store_quantised<true, T>(to + i * kApart, part[i], divide, left - i * kApart);
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
  const Divider divide = row_divider(g, place, most);
#pragma unroll 1
  for (int at = first; at < width; at += step) {
    fp8* to = g.quantised + place.row * g.width + at;
    store_quantised<false, T>(to, result(at), divide, width - at);
  }
}

template <Quant kQuant, int kCount, class T, class Act>
__device__ inline void gate_parts(const Gated<T>& g, const Act& act) {
  is_aligned<kQuant>(g) ? gate_part<kQuant, true, kCount>(g, act)
                        : gate_part<kQuant, false, kCount>(g, act);
}

template <Quant kQuant, int kCount = kTogether, class T, class Act>
__device__ inline void gate(const Gated<T>& g, const Act& act) {
  if constexpr (kQuant == Quant::kRow) {
    is_aligned<kQuant>(g) ? gate_kept<kCount>(g, act) : gate_again(g, act);
  } else {
    // Where there are few rows, a thread for each chunk.
    const int threads = g.row_blocks * static_cast<int>(blockDim.x);
    const bool many = g.width > threads * kValues<T>;
    many ? gate_parts<kQuant, kCount>(g, act) : gate_parts<kQuant, 1>(g, act);
  }
}

template <Quant kQuant, int kCount = kTogether, class T>
__device__ inline void gelu(const Gated<T>& g, bool tanh) {
  tanh ? gate<kQuant, kCount>(g, GeluTanh{}) : gate<kQuant, kCount>(g, GeluErf{});
}

}  // namespace vcc
