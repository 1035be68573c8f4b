// Heads turned by position, halves paired (NeoX): the first 2 * half values of each head.
//
// A head's work is cut into units of two chunks: one of the first half with its partner of the
// second, or two of the values behind, which stay as they are. `lanes` neighbours, a power of two
// that covers the units, take a head; each thread takes the same unit of several heads, so that
// cosines and sines are read once.
#pragma once

#include "cache.cuh"

namespace vcc {

constexpr int kHeadsAtOnce = 2;  // that a thread has under way

template <class T, class C = T>
struct Rope {
  const T *q, *k, *v;            // v where kCache
  const T *q_weight, *k_weight;  // where kNorm
  const float *cos, *sin;
  T *q_out, *k_out;  // k_out where not kCache
  C* cache;          // where kCache: keys, `plane` values further values
  const int* slots;
  const float* scales;  // of an fp8 cache; null: ones
  int heads, kv_heads, head_dim, half, lanes;
  int block_size;
  int64_t q_stride, k_stride, v_stride, cos_stride, sin_stride;  // values between tokens
  int64_t plane, block_stride, slot_stride;
  float eps, offset;
};

struct Unit {
  int low, high;            // first value of both chunks
  int low_left, high_left;  // values from there on
  bool turns;
};

template <class T>
__device__ inline Unit unit_of(int lane, int head_dim, int half) {
  constexpr int kWidth = kValues<T>;
  const int pairs = (half + kWidth - 1) / kWidth, at = lane * kWidth;
  if (lane < pairs) return {at, half + at, half - at, half - at, true};
  const int low = 2 * (half + (lane - pairs) * kWidth);
  return {low, low + kWidth, head_dim - low, head_dim - low - kWidth, false};
}

template <class T, class C>
struct Head {
  const T* from;
  T* to;    // null where nothing is written
  C* slot;  // the same, in the cache
  const T* weight;
  bool there, turns;
};

// Query heads first, then key heads, then, for the cache, value heads.
template <bool kNorm, bool kCache, class T, class C>
__device__ inline Head<T, C> head_of(const Rope<T, C>& r, int64_t token, int head, C* key_home) {
  if (head < r.heads) {
    const int64_t at = int64_t{head} * r.head_dim;
    return {r.q + token * r.q_stride + at,
            r.q_out + token * r.heads * r.head_dim + at,
            nullptr,
            kNorm ? r.q_weight : nullptr,
            true,
            true};
  }
  const int own = head - r.heads;
  const int64_t at = int64_t{own % r.kv_heads} * r.head_dim;
  const bool key = own < r.kv_heads;
  if constexpr (kCache) {
    const T* from = key ? r.k + token * r.k_stride + at : r.v + token * r.v_stride + at;
    C* slot = key_home == nullptr ? nullptr : key_home + (key ? at : r.plane + at);
    return {from, nullptr, slot, nullptr, own < 2 * r.kv_heads, key};
  }
  return {r.k + token * r.k_stride + at,
          r.k_out + token * r.kv_heads * r.head_dim + at,
          nullptr,
          kNorm ? r.k_weight : nullptr,
          key,
          true};
}

template <bool kNorm, bool kCache, class T, class C>
__device__ inline bool is_aligned(const Rope<T, C>& r) {
  constexpr int kWidth = kValues<T>;
  bool fits = r.head_dim % kWidth == 0 && r.half % kWidth == 0;
  fits = fits && rows_aligned(r.q, r.q_stride) && rows_aligned(r.k, r.k_stride);
  fits = fits && rows_aligned(r.cos, r.cos_stride) && rows_aligned(r.sin, r.sin_stride);
  fits = fits && is_aligned(r.q_out);
  if (kNorm) fits = fits && is_aligned(r.q_weight) && is_aligned(r.k_weight);
  if (!kCache) return fits && is_aligned(r.k_out);
  return fits && rows_aligned(r.v, r.v_stride) &&
         slots_aligned<T>(r.cache, r.plane, r.block_stride, r.slot_stride);
}

template <class T, class C>
__device__ inline void normed(Chunk& low, Chunk& high, const Chunk& low_gain,
                              const Chunk& high_gain, const Rope<T, C>& r) {
  float a[kValues<T>], b[kValues<T>], gain[kValues<T>], sum = 0.0f;
  unpack(T{}, low, a);
  unpack(T{}, high, b);
#pragma unroll
  for (int i = 0; i < kValues<T>; ++i) sum += a[i] * a[i] + b[i] * b[i];
  const float mean = over_lanes<Sum>(sum, r.lanes) / static_cast<float>(r.head_dim);
  const float factor = rsqrtf(mean + r.eps);
  unpack(T{}, low_gain, gain);
#pragma unroll
  for (int i = 0; i < kValues<T>; ++i) a[i] = a[i] * factor * (gain[i] + r.offset);
  unpack(T{}, high_gain, gain);
#pragma unroll
  for (int i = 0; i < kValues<T>; ++i) b[i] = b[i] * factor * (gain[i] + r.offset);
  pack(T{}, a, low);  // rounded, as the norm by itself hands it on
  pack(T{}, b, high);
}

template <class T>
__device__ inline void turned(Chunk& low, Chunk& high, const float (&cosine)[kValues<T>],
                              const float (&sine)[kValues<T>]) {
  float a[kValues<T>], b[kValues<T>], first[kValues<T>], second[kValues<T>];
  unpack(T{}, low, a);
  unpack(T{}, high, b);
#pragma unroll
  for (int i = 0; i < kValues<T>; ++i) {
    first[i] = a[i] * cosine[i] - b[i] * sine[i];
    second[i] = b[i] * cosine[i] + a[i] * sine[i];
  }
  pack(T{}, first, low);
  pack(T{}, second, high);
}

template <bool kNorm, bool kCache, bool kAligned, class T, class C>
__device__ inline void rope_token(const Rope<T, C>& r) {
  const int64_t token = blockIdx.x;
  const int lane = threadIdx.x % r.lanes, own = threadIdx.x / r.lanes;
  const int step = blockDim.x / r.lanes;  // heads of a turn
  const Unit unit = unit_of<T>(lane, r.head_dim, r.half);
  float cosine[kValues<T>], sine[kValues<T>];
  const int turning = unit.turns ? unit.low_left : 0;
  load_numbers<kAligned>(r.cos + token * r.cos_stride + unit.low, cosine, turning);
  load_numbers<kAligned>(r.sin + token * r.sin_stride + unit.low, sine, turning);
  C* key_home = nullptr;
  [[maybe_unused]] const CacheScales scales(kCache ? r.scales : nullptr);
  if constexpr (kCache) {
    const int slot = read_value(r.slots + token);
    if (slot >= 0) {
      key_home =
          r.cache + (slot / r.block_size) * r.block_stride + (slot % r.block_size) * r.slot_stride;
    }
  }
  constexpr int kTurn = kAligned ? kHeadsAtOnce : 1;  // value by value takes registers enough
  const int total = r.heads + (kCache ? 2 : 1) * r.kv_heads;
  for (int begin = 0; begin < total; begin += kTurn * step) {
    Head<T, C> head[kTurn];
    Chunk low[kTurn], high[kTurn];
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      head[i] = head_of<kNorm, kCache>(r, token, begin + i * step + own, key_home);
      low[i] = load<kAligned, true>(head[i].from + unit.low, head[i].there ? unit.low_left : 0);
      high[i] = load<kAligned, true>(head[i].from + unit.high, head[i].there ? unit.high_left : 0);
    }
#pragma unroll
    for (int i = 0; i < kTurn; ++i) {
      if constexpr (kNorm) {
        const T* weight = head[i].weight;
        normed<T>(low[i], high[i], load<kAligned, false>(weight + unit.low, unit.low_left),
                  load<kAligned, false>(weight + unit.high, unit.high_left), r);
      }
      if (unit.turns && head[i].turns) turned<T>(low[i], high[i], cosine, sine);
      if constexpr (kCache) {
        const bool cached = head[i].there && head[i].slot != nullptr;
        const float by = head[i].turns ? scales.key : scales.value;
        store_cached<kAligned, T>(head[i].slot + unit.low, low[i], by, cached ? unit.low_left : 0);
        store_cached<kAligned, T>(head[i].slot + unit.high, high[i], by,
                                  cached ? unit.high_left : 0);
      }
      const bool written = head[i].there && head[i].to != nullptr;
      store<kAligned>(head[i].to + unit.low, low[i], written ? unit.low_left : 0);
      store<kAligned>(head[i].to + unit.high, high[i], written ? unit.high_left : 0);
    }
  }
}

template <bool kNorm, bool kCache, class T, class C>
__device__ inline void rope(const Rope<T, C>& r) {
  if (is_aligned<kNorm, kCache>(r)) {
    rope_token<kNorm, kCache, true>(r);
  } else {
    rope_token<kNorm, kCache, false>(r);
  }
}

}  // namespace vcc
