// Heads turned by position, halves paired (NeoX): the first 2 * half values of each head.
//
// A head's work is cut into units of two chunks: one of the first half with its partner of the
// second, or two of the values behind, which stay as they are. `lanes` neighbours, a power of two
// that covers the units, take a head; each thread takes the same unit of several heads, so that
// cosines and sines are read once. With few tokens several blocks take a token, and a thread one
// head.
#pragma once

#include "cache.cuh"
#include "scaled.cuh"

namespace vcc {

constexpr int kHeadsAtOnce = 2;  // that a thread has under way, where a block takes a token

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
  int shift;  // 2^shift blocks take a token
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

// Where a token's rows lie.
template <class T, class C>
struct Token {
  const T *q, *k, *v;
  T *q_out, *k_out;
  C* slot;  // in the cache, null where it has none

  __device__ explicit Token(const Rope<T, C>& r, int64_t token)
      : q(r.q + token * r.q_stride),
        k(r.k + token * r.k_stride),
        v(r.v + token * r.v_stride),
        q_out(r.q_out + token * (r.heads * r.head_dim)),
        k_out(r.k_out + token * (r.kv_heads * r.head_dim)),
        slot(nullptr) {}
};

// Which heads a thread takes: those from `first` on, `step` apart.
struct Share {
  int64_t token;
  int lane, first, step;
};

template <class T, class C>
__device__ inline Share share_of(const Rope<T, C>& r) {
  const int by = 31 - __clz(r.lanes);  // lanes are a power of two
  const int each = blockDim.x >> by;   // heads that a block has at a time
  const int64_t token = blockIdx.x >> r.shift;
  const int block = blockIdx.x - (static_cast<unsigned>(token) << r.shift);
  const int own = threadIdx.x >> by;
  return {token, static_cast<int>(threadIdx.x) & (r.lanes - 1), block * each + own,
          each << r.shift};
}

// A head of a token: query heads first, then key heads, then, for the cache, value heads.
struct Head {
  int at;  // its first value in the row that it lies in
  bool query, key, there;
};

template <bool kCache, class T, class C>
__device__ inline Head head_of(const Rope<T, C>& r, int head) {
  const bool query = head < r.heads;
  int own = query ? head : head - r.heads;
  const bool value = kCache && !query && own >= r.kv_heads;
  if (value) own -= r.kv_heads;
  return {own * r.head_dim, query, !query && !value, query || own < r.kv_heads};
}

template <bool kNorm, bool kCache, class T, class C>
__device__ inline bool is_aligned(const Rope<T, C>& r) {
  uint32_t odd = place_bits(r.q) | place_bits(r.k) | place_bits(r.q_out);
  odd |= row_bits<T>(r.q_stride | r.k_stride | r.head_dim | r.half);
  odd |= place_bits(r.cos) | place_bits(r.sin) | row_bits<float>(r.cos_stride | r.sin_stride);
  if (kNorm) odd |= place_bits(r.q_weight) | place_bits(r.k_weight);
  if (kCache) {
    odd |= place_bits(r.v) | row_bits<T>(r.v_stride | r.plane | r.block_stride | r.slot_stride);
    // A chunk's values take fewer bytes in an fp8 cache, and as much less alignment is enough.
    odd |= place_bits(r.cache) * (sizeof(T) / sizeof(C));
  } else {
    odd |= place_bits(r.k_out);
  }
  return odd % sizeof(Chunk) == 0;
}

// What a head is multiplied by, from the sum of its squares.
template <class T, class C>
__device__ inline float factor_of(const Rope<T, C>& r, float sum) {
  return rsqrtf(sum * near_reciprocal(static_cast<float>(r.head_dim)) + r.eps);
}

// The same of all heads that a thread has under way.
template <int kTurn, class T, class C>
__device__ inline void factors(float (&factor)[kTurn], Chunk (&low)[kTurn], Chunk (&high)[kTurn],
                               const Rope<T, C>& r) {
#pragma unroll
  for (int i = 0; i < kTurn; ++i) {
    factor[i] = squares<T>(low[i]) + squares<T>(high[i]);
    keep_packed(low[i]), keep_packed(high[i]);
  }
  // The lanes are known at run time only; the heads are unrolled, so that their shuffles overlap.
#pragma unroll 1
  for (int apart = r.lanes / 2; apart > 0; apart /= 2) {
#pragma unroll
    for (float& sum : factor) sum += __shfl_xor_sync(kAll, sum, apart);
  }
#pragma unroll
  for (float& sum : factor) sum = factor_of(r, sum);
}

template <class T>
__device__ inline void turned(Chunk& low, Chunk& high, const float (&cosine)[kValues<T>],
                              const float (&sine)[kValues<T>]) {
  float a[kValues<T>], b[kValues<T>];
  unpack(T{}, low, a);
  unpack(T{}, high, b);
#pragma unroll
  for (int i = 0; i < kValues<T>; ++i) {
    const float first = a[i];
    a[i] = first * cosine[i] - b[i] * sine[i];
    b[i] = b[i] * cosine[i] + first * sine[i];
  }
  pack(T{}, a, low);
  pack(T{}, b, high);
}

template <bool kCache, class T, class C>
__device__ inline const T* source_of(const Token<T, C>& token, const Head& head) {
  return (head.query ? token.q : !kCache || head.key ? token.k : token.v) + head.at;
}

// What becomes of a head's unit.
template <bool kCache, class T, class C>
__device__ inline void put(const Token<T, C>& token, const Head& head, const Unit& unit,
                           const Chunk& low, const Chunk& high, int64_t plane,
                           const CacheScales& scales) {
  if (kCache && !head.query) {
    const bool cached = head.there && token.slot != nullptr;
    C* to = token.slot + (head.key ? 0 : plane) + head.at;
    const float by = head.key ? scales.key : scales.value;
    store_cached<true, T>(to + unit.low, low, by, cached ? unit.low_left : 0);
    store_cached<true, T>(to + unit.high, high, by, cached ? unit.high_left : 0);
    return;
  }
  T* to = (head.query ? token.q_out : token.k_out) + head.at;
  store<true>(to + unit.low, low, head.there ? unit.low_left : 0);
  store<true>(to + unit.high, high, head.there ? unit.high_left : 0);
}

// Where the keys of a token go; null for no slot.
template <class T, class C>
__device__ inline C* slot_of(const Rope<T, C>& r, int slot) {
  if (slot < 0) return nullptr;
  return r.cache + slot / r.block_size * r.block_stride + slot % r.block_size * r.slot_stride;
}

template <bool kNorm, bool kCache, int kHeads, class T, class C>
__device__ inline void rope_chunks(const Rope<T, C>& r) {
  const Share share = share_of(r);
  Token<T, C> token(r, share.token);
  const Unit unit = unit_of<T>(share.lane, r.head_dim, r.half);
  [[maybe_unused]] const CacheScales scales(kCache ? r.scales : nullptr);
  const int slot = kCache ? read_value(r.slots + share.token) : -1;
  const int total = r.heads + (kCache ? 2 : 1) * r.kv_heads;
  float cosine[kValues<T>], sine[kValues<T>];
  const int turning = unit.turns ? unit.low_left : 0;
  load_numbers<true>(r.cos + share.token * r.cos_stride + unit.low, cosine, turning);
  load_numbers<true>(r.sin + share.token * r.sin_stride + unit.low, sine, turning);
  // Lanes of a warp may exchange numbers: all of them take as many turns.
#pragma unroll 1
  for (int begin = 0; begin < total; begin += kHeads * share.step) {
    Head head[kHeads];
    Chunk low[kHeads], high[kHeads];
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      head[i] = head_of<kCache>(r, begin + i * share.step + share.first);
      const T* from = source_of<kCache>(token, head[i]);
      low[i] = load<true, true>(from + unit.low, head[i].there ? unit.low_left : 0);
      high[i] = load<true, true>(from + unit.high, head[i].there ? unit.high_left : 0);
    }
    if constexpr (kCache) token.slot = slot_of(r, slot);  // behind the loads, which do not wait
    [[maybe_unused]] float factor[kHeads];
    if constexpr (kNorm) factors(factor, low, high, r);
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      if constexpr (kNorm) {
        const T* weight = head[i].query ? r.q_weight : r.k_weight;
        const Chunk first = load<true, false>(weight + unit.low, unit.low_left);
        const Chunk second = load<true, false>(weight + unit.high, unit.high_left);
        // Rounded, as the norm by itself hands them on.
        low[i] = scaled<T>(low[i], first, factor[i], r.offset);
        high[i] = scaled<T>(high[i], second, factor[i], r.offset);
      }
      if (unit.turns && (!kCache || head[i].query || head[i].key)) {
        turned<T>(low[i], high[i], cosine, sine);
      }
      put<kCache>(token, head[i], unit, low[i], high[i], r.plane, scales);
    }
  }
}

// The same of what is not made of whole chunks: value by value, and read again instead of kept.
template <bool kNorm, bool kCache, class T, class C>
__device__ inline void rope_values(const Rope<T, C>& r) {
  const Share share = share_of(r);
  Token<T, C> token(r, share.token);
  const int lane = share.lane, total = r.heads + (kCache ? 2 : 1) * r.kv_heads;
  const CacheScales scales(kCache ? r.scales : nullptr);
  if constexpr (kCache) token.slot = slot_of(r, read_value(r.slots + share.token));
  const float* cos = r.cos + share.token * r.cos_stride;
  const float* sin = r.sin + share.token * r.sin_stride;
#pragma unroll 1
  for (int begin = 0; begin < total; begin += share.step) {
    const Head head = head_of<kCache>(r, begin + share.first);
    const T* from = source_of<kCache>(token, head);
    const int width = head.there ? r.head_dim : 0;
    [[maybe_unused]] const T* weight = head.query ? r.q_weight : r.k_weight;
    float factor = 1.0f;
    if constexpr (kNorm) {
      float sum = 0.0f;
#pragma unroll 1
      for (int i = lane; i < width; i += r.lanes) {
        const float value = wide(read_value(from + i));
        sum += value * value;
      }
      factor = factor_of(r, over_lanes<Sum>(sum, r.lanes));
    }
    const auto value_at = [&](int i) {
      const float value = wide(read_value(from + i));
      if constexpr (!kNorm) return value;
      return wide(narrow<T>(value * factor * (wide(read_value(weight + i)) + r.offset)));
    };
    const auto put_at = [&](int i, float value) {
      if (kCache && !head.query) {
        if (token.slot == nullptr) return;
        C* to = token.slot + (head.key ? 0 : r.plane) + head.at + i;
        store_cached<T>(to, value, head.key ? scales.key : scales.value);
      } else {
        T* to = (head.query ? token.q_out : token.k_out) + head.at + i;
        write_value(to, narrow<T>(value));
      }
    };
    const int turned = !kCache || head.query || head.key ? r.half : 0;
#pragma unroll 1
    for (int i = lane; i < width - turned; i += r.lanes) {
      if (i >= turned) {  // behind both halves, or a value head
        put_at(i + turned, value_at(i + turned));
        continue;
      }
      const float low = value_at(i), high = value_at(i + turned);
      const float cosine = read_value(cos + i), sine = read_value(sin + i);
      put_at(i, low * cosine - high * sine);
      put_at(i + turned, high * cosine + low * sine);
    }
  }
}

template <bool kNorm, bool kCache, class T, class C>
__device__ inline void rope(const Rope<T, C>& r) {
  if (!is_aligned<kNorm, kCache>(r)) {
    rope_values<kNorm, kCache>(r);
  } else if (r.shift == 0) {
    rope_chunks<kNorm, kCache, kHeadsAtOnce>(r);
  } else {
    rope_chunks<kNorm, kCache, 1>(r);
  }
}

}  // namespace vcc
