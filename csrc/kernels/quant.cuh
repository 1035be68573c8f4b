// Quantisation to float8_e4m3fn: x / scale in fp32, clamped to +-448, rounded to nearest even.
#pragma once

#include "fast.cuh"
#include "rows.cuh"

namespace vcc {

enum class Quant { kNone, kStatic, kRow, kBlock };

constexpr float kLargest = 448.0f;
constexpr int kBlockValues = 128;  // that share a scale

// Divides by one scale, without the ten instructions and the branch of a division.
//
// Of 16-bit numbers a quotient is x * (high + low), where high is below the reciprocal and low, of
// the same sign, is the rest and 2^-42 more: so infinities stay infinite. What is rounded lies at
// most 2^-41 above x / scale, and becomes the same fp8: x has 11 bits and a number half-way
// between two of fp8 has 5, which keeps quotients that far from where the fp32 number beside a
// half-way one begins, save that of 1 and 1 - 2^-24, which lies above it.
//
// Of fp32 numbers a product by the rounded reciprocal is corrected by its remainder.
struct Divider {
  float scale, high, low;
  bool lifted;  // scale and values were multiplied, to stay in the range of fp32

  __device__ explicit Divider(float by) {
    const float size = fabsf(by);
    lifted = !(size > 0x1p-100f && size < 0x1p100f);
    set(lifted ? by * (size < 1.0f ? kUp : kDown) : by);
    if (lifted && !(size > 0.0f && size < INFINITY)) low = high;  // infinite, zero or NaN
  }

  // The same of what is known to need no lift.
  __device__ static Divider by_common(float by) {
    Divider made;
    made.lifted = false;
    made.set(by);
    return made;
  }

  // That of another lane: all of a warp's call this, and none needs a lift.
  __device__ Divider of_lane(int lane) const {
    Divider made;
    made.lifted = false;
    made.scale = scale;  // of this lane: only numbers in fp32 need it
    made.high = __shfl_sync(kAll, high, lane);
    made.low = __shfl_sync(kAll, low, lane);
    return made;
  }

  template <class T, int kCount>
  __device__ void all(float (&values)[kCount]) const {
    if (lifted) lift(values);
#pragma unroll
    for (float& value : values) {
      if constexpr (sizeof(T) == 4) {
        value = exactly(value);
      } else {
        value = fmaf(value, high, value * low);
      }
    }
  }

 private:
  static constexpr float kUp = 0x1p64f, kDown = 0x1p-64f;

  __device__ Divider() {}

  __device__ void set(float by) {
    scale = by;
    high = near_reciprocal(scale) * (1.0f - 0x1p-22f);
    const float rest = fmaf(-high, scale, 1.0f);
    low = fmaf(high, 0x1p-42f, high * fmaf(rest, rest, rest));
  }

  template <int kCount>
  __device__ void lift(float (&values)[kCount]) const {
    const float by = fabsf(high) > 1.0f ? kUp : kDown;
#pragma unroll
    for (float& value : values) value *= by;
  }

  __device__ float exactly(float x) const {
    const float reciprocal = 1.0f / scale, first = x * reciprocal;
    const float better = fmaf(fmaf(-first, scale, x), reciprocal, first);
    return fabsf(better) <= 0x1p126f ? better : first;  // infinities and NaN
  }
};

template <bool kAligned, class T>
__device__ inline void store_quantised(fp8* to, const Chunk& chunk, const Divider& divide,
                                       int left) {
  float values[kValues<T>];
  unpack(T{}, chunk, values);
  divide.all<T>(values);
  store_fp8<kAligned>(to, values, left);
}

// The largest magnitude, NaN if there is one, of what was added: of two halves where T has 16 bits.
template <class T>
struct Largest {
  uint32_t bits = 0;

  __device__ void add(const Chunk& chunk) {
#pragma unroll
    for (const uint32_t word : chunk.word) bits = larger_magnitude(T{}, bits, word);
  }
  __device__ float value() const {
    if constexpr (sizeof(T) == 4) return as_float(bits);
    return larger(fabsf(wide(value_of<T>(bits))), fabsf(wide(value_of<T>(bits >> 16))));
  }
};

template <class T>
__device__ inline float most_of(const Chunk& chunk) {
  Largest<T> largest;
  largest.add(chunk);
  return largest.value();
}

// The scale of values whose largest magnitude is `most`, and division by it.
struct Scaling {
  float scale;
  Divider divide;
};

// The scale is the larger of both by 448, as a division rounds it: the product with a reciprocal
// in two parts does that, as no quotient by 7 is near the middle between two numbers.
__device__ inline Scaling scaling_of(float most, float least) {
  const float value = larger(most, least);
  if (value > 0x1p-90f && value < 0x1p100f) {
    const float scale = fmaf(value, 0x1.249248p-9f, value * 0x1.24924ap-33f);
    return {scale, Divider::by_common(scale)};
  }
  const float scale = value / kLargest;
  return {scale, Divider(scale)};
}

// A chunk of a row in blocks of 128 values, which lie in neighbouring lanes: all of them call this,
// and each writes their scale.
template <bool kAligned, class T>
__device__ inline void store_block(fp8* to, float* scale_to, const Chunk& chunk, int left,
                                   float least) {
  constexpr int kLanes = kBlockValues / kValues<T>;
  const Scaling by = scaling_of(over_lanes<Most>(most_of<T>(chunk), kLanes), least);
  store_quantised<kAligned, T>(to, chunk, by.divide, left);
  if (left > 0) write_value(scale_to, by.scale);
}

// The largest magnitudes of two chunks of 16-bit numbers, one in each half.
template <class T>
__device__ inline uint32_t most_of_both(const Chunk& first, const Chunk& second) {
  Largest<T> one, other;
  one.add(first), other.add(second);
  const uint32_t low = (one.bits & 0xffff) | other.bits << 16;
  return larger_magnitude(T{}, low, one.bits >> 16 | (other.bits & 0xffff0000));
}

// Which of kCount chunks, two or four, a lane finds the scale of, and that scale; the blocks of a
// chunk take half a warp, of which several lanes each have the same.
struct OwnScale {
  int chunk;
  Scaling by;
};

template <int kCount>
constexpr int kLanesOfScale = kWarp / 2 / kCount;

template <int kCount, class T>
__device__ inline OwnScale own_scale(const Chunk (&part)[kCount], float least) {
  static_assert(kCount == 2 || kCount == 4);
  const int lane = threadIdx.x % kWarp;
  uint32_t most = most_of_both<T>(part[0], part[1]);
  if constexpr (kCount == 4) {  // each half of the lanes goes on with two of the chunks
    const uint32_t other = most_of_both<T>(part[2], part[3]);
    const uint32_t given = __shfl_xor_sync(kAll, lane & 8 ? most : other, 8);
    most = larger_magnitude(T{}, lane & 8 ? other : most, given);
  }
#pragma unroll
  for (int apart = kCount == 4 ? 4 : 8; apart > 0; apart /= 2) {
    most = larger_magnitude(T{}, most, __shfl_xor_sync(kAll, most, apart));
  }
  const bool second = lane & kLanesOfScale<kCount>;
  const float own = fabsf(wide(value_of<T>(second ? most >> 16 : most)));
  return {lane / kLanesOfScale<kCount> % kCount, scaling_of(own, least)};
}

// Where the scale of a block of a row lies: those of a block of all rows together, as products read
// them.
__device__ inline float* scale_place(float* scales, int64_t row, int at, int rows) {
  return scales + row + int64_t{at / kBlockValues} * rows;
}

// Chunks that lie `apart` values apart, aligned: all lanes of a warp call this. `scales` is the
// place of the first, and those of neighbouring blocks lie `rows` apart.
template <int kCount, class T>
__device__ inline void store_blocks(T, fp8* to, float* scales, int rows,
                                    const Chunk (&part)[kCount], int apart, int left, float least) {
  if constexpr (sizeof(T) == 4 || kCount == 1) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      store_block<true, T>(to + i * apart, scale_place(scales, 0, i * apart, rows), part[i],
                           left - i * apart, least);
    }
  } else {
    const OwnScale own = own_scale<kCount, T>(part, least);
    if (left > own.chunk * apart) {
      write_value(scale_place(scales, 0, own.chunk * apart, rows), own.by.scale);
    }
    const bool common = !__any_sync(kAll, own.by.divide.lifted);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int lane = (threadIdx.x & 16) | i * kLanesOfScale<kCount>;
      const Divider divide =
          common ? own.by.divide.of_lane(lane) : Divider(__shfl_sync(kAll, own.by.scale, lane));
      store_quantised<true, T>(to + i * apart, part[i], divide, left - i * apart);
    }
  }
}

}  // namespace vcc
