// Vectors of fp32 in the widest register of the instruction set this file is compiled for.
//
// Everything here lives in namespace vcc::VCC_ISA: the same source is compiled once per instruction
// set, and a function shared between two of them could carry AVX-512 into a plain AVX2 machine. For
// the same reason no file of this folder uses the C++ library or torch headers.
#pragma once

#include <stdint.h>
#if defined(__AVX2__)
// GCC 12's own header warns about its deliberately undefined operands (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#ifndef VCC_ISA
#error "compile with -DVCC_ISA=<name of the instruction set>"
#endif

#define VCC_INLINE inline __attribute__((always_inline))

namespace vcc {
namespace VCC_ISA {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
constexpr int kTileRows = 6, kTileVecs = 4;  // accumulators of the GEMM micro-kernel: 24 of 32
#elif defined(__AVX__)
constexpr int kWidth = 8;
constexpr int kTileRows = 6, kTileVecs = 2;  // 12 of 16 registers
#else
constexpr int kWidth = 4;
constexpr int kTileRows = 4, kTileVecs = 2;
#endif

typedef float VecF __attribute__((vector_size(4 * kWidth)));
typedef int32_t VecI __attribute__((vector_size(4 * kWidth)));
typedef uint32_t VecU __attribute__((vector_size(4 * kWidth)));
typedef uint16_t VecH __attribute__((vector_size(2 * kWidth)));

// A bfloat16 in memory: the upper half of an fp32.
struct BF16 {
  uint16_t bits;
};

// A float8_e4m3fn in memory.
struct Fp8 {
  uint8_t bits;
};

VCC_INLINE VecF splat(float x) { return x - VecF{}; }

template <class To, class From>
VCC_INLINE To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

// Intrinsics stand where GCC 12 makes several instructions out of one.
VCC_INLINE VecU zero_extend(VecH half) {
#if defined(__AVX512F__)
  return bits_of<VecU>(_mm512_cvtepu16_epi32(bits_of<__m256i>(half)));
#elif defined(__AVX2__)
  return bits_of<VecU>(_mm256_cvtepu16_epi32(bits_of<__m128i>(half)));
#else
  return __builtin_convertvector(half, VecU);
#endif
}

VCC_INLINE VecH truncate(VecU whole) {
#if defined(__AVX512F__)
  return bits_of<VecH>(_mm512_cvtepi32_epi16(bits_of<__m512i>(whole)));
#elif defined(__AVX2__)
  const __m256i v = bits_of<__m256i>(whole);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(v, v), 0x08);
  return bits_of<VecH>(_mm256_castsi256_si128(packed));
#else
  return __builtin_convertvector(whole, VecH);
#endif
}

VCC_INLINE VecF widen(VecH half) { return bits_of<VecF>(zero_extend(half) << 16); }

// Round to nearest even; NaN stays NaN.
VCC_INLINE VecH narrow(VecF x) {
  const VecU u = bits_of<VecU>(x);
  const VecU rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return truncate(x == x ? rounded : (u >> 16 | 0x40));
}

VCC_INLINE float to_float(float x) { return x; }
VCC_INLINE float to_float(BF16 x) { return bits_of<float>(static_cast<uint32_t>(x.bits) << 16); }

typedef uint8_t VecB __attribute__((vector_size(kWidth)));

// The exponent moves by 120; below 2^-6 the mantissa is behind a one that is taken off again.
template <class Bits, class Float>
VCC_INLINE Float from_fp8(Bits u) {
  const Bits magnitude = u & 0x7Fu, shifted = magnitude << 20;
  const Bits small = bits_of<Bits>(bits_of<Float>(shifted + 0x3C800000u) - 0.015625f);
  const Bits value = magnitude < 8u ? small : shifted + 0x3C000000u;
  return bits_of<Float>((magnitude == 0x7Fu ? value | 0x7FC00000u : value) | (u & 0x80u) << 24);
}

VCC_INLINE float to_float(Fp8 x) { return from_fp8<uint32_t, float>(x.bits); }

VCC_INLINE void put(float* p, float x) { *p = x; }
VCC_INLINE void put(BF16* p, float x) {
  const uint32_t u = bits_of<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  p->bits = static_cast<uint16_t>(x == x ? rounded : (u >> 16 | 0x40));
}

VCC_INLINE VecF load(const float* p) {
  VecF v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
VCC_INLINE VecF load(const BF16* p) {
  VecH v;
  __builtin_memcpy(&v, p, sizeof(v));
  return widen(v);
}
VCC_INLINE VecF load(const Fp8* p) {
  VecB v;
  __builtin_memcpy(&v, p, sizeof(v));
#if defined(__AVX512F__)
  const VecU wide = bits_of<VecU>(_mm512_cvtepu8_epi32(bits_of<__m128i>(v)));
#elif defined(__AVX2__)
  __m128i half{};
  __builtin_memcpy(&half, &v, sizeof(v));
  const VecU wide = bits_of<VecU>(_mm256_cvtepu8_epi32(half));
#else
  const VecU wide = __builtin_convertvector(v, VecU);
#endif
  return from_fp8<VecU, VecF>(wide);
}
VCC_INLINE void store(float* p, VecF v) { __builtin_memcpy(p, &v, sizeof(v)); }
VCC_INLINE void store(BF16* p, VecF v) {
  const VecH half = narrow(v);
  __builtin_memcpy(p, &half, sizeof(half));
}

// The first n < kWidth elements; the other lanes are zero and their memory is not read.
template <class T>
VCC_INLINE VecF load_part(const T* p, int n) {
  float lanes[kWidth] = {};
  for (int i = 0; i < n; ++i) lanes[i] = to_float(p[i]);
  return load(lanes);
}
template <class T>
VCC_INLINE void store_part(T* p, VecF v, int n) {
  float lanes[kWidth];
  store(lanes, v);
  for (int i = 0; i < n; ++i) put(p + i, lanes[i]);
}

// The second operand where either is NaN.
VCC_INLINE VecF max(VecF a, VecF b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
VCC_INLINE VecF min(VecF a, VecF b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

VCC_INLINE VecI lane_index() {
  VecI v;
  for (int i = 0; i < kWidth; ++i) v[i] = i;
  return v;
}

// Lanes i of `a` (i < kWidth) and of `b` (kWidth + i) in the order of `Lanes`.
template <int... Lanes>
VCC_INLINE VecF shuffle(VecF a, VecF b) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, Lanes...);
#else
  return __builtin_shuffle(a, b, VecI{Lanes...});
#endif
}

template <int... I>
struct Seq {};
template <int N, int... I>
struct MakeSeq : MakeSeq<N - 1, N - 1, I...> {};
template <int... I>
struct MakeSeq<0, I...> {
  using type = Seq<I...>;
};
using Lanes = MakeSeq<kWidth>::type;

template <int... I>
VCC_INLINE VecF interleave_low(VecF a, VecF b, Seq<I...>) {
  return shuffle<(I % 2) * kWidth + I / 2 ...>(a, b);
}
template <int... I>
VCC_INLINE VecF interleave_high(VecF a, VecF b, Seq<I...>) {
  return shuffle<(I % 2) * kWidth + kWidth / 2 + I / 2 ...>(a, b);
}
template <int Step, int... I>
VCC_INLINE VecF swap_lanes(VecF a, Seq<I...>) {
  return shuffle<(I ^ Step)...>(a, a);
}

VCC_INLINE float sum_lanes(VecF v) {
  if constexpr (kWidth >= 16) v += swap_lanes<8 % kWidth>(v, Lanes{});
  if constexpr (kWidth >= 8) v += swap_lanes<4 % kWidth>(v, Lanes{});
  v += swap_lanes<2>(v, Lanes{});
  v += swap_lanes<1>(v, Lanes{});
  return v[0];
}
VCC_INLINE float max_lanes(VecF v) {
  if constexpr (kWidth >= 16) v = max(v, swap_lanes<8 % kWidth>(v, Lanes{}));
  if constexpr (kWidth >= 8) v = max(v, swap_lanes<4 % kWidth>(v, Lanes{}));
  v = max(v, swap_lanes<2>(v, Lanes{}));
  v = max(v, swap_lanes<1>(v, Lanes{}));
  return v[0];
}

// Transpose kWidth vectors in place: log2(kWidth) rounds of the perfect shuffle.
VCC_INLINE void transpose(VecF* rows) {
  VecF next[kWidth];
#pragma GCC unroll 4
  for (int round = 1; round < kWidth; round *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < kWidth / 2; ++i) {
      next[2 * i] = interleave_low(rows[i], rows[i + kWidth / 2], Lanes{});
      next[2 * i + 1] = interleave_high(rows[i], rows[i + kWidth / 2], Lanes{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) rows[i] = next[i];
  }
}

// Lane i of the result is the sum of the lanes of rows[i].
VCC_INLINE VecF sum_rows(VecF* rows) {
#pragma GCC unroll 4
  for (int n = kWidth; n > 1; n /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < n / 2; ++i) {
      const VecF a = rows[i], b = rows[i + n / 2];
      rows[i] = interleave_low(a, b, Lanes{}) + interleave_high(a, b, Lanes{});
    }
  }
  return rows[0];
}

// p * 2^n for whole n in [-126, 128].
VCC_INLINE VecF scale_by_power(VecF p, VecF n) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, n);
#else
  // Two factors: 128 is above the largest exponent.
  const VecI power = __builtin_convertvector(n, VecI), half = power >> 1;
  const VecI rest = power - half;
  return p * bits_of<VecF>((half + 127) << 23) * bits_of<VecF>((rest + 127) << 23);
#endif
}

// e^x within 2 ulp; 0 below -87.3, inf above 88.7, NaN for NaN. Cephes' expf polynomial.
VCC_INLINE VecF exp(VecF x) {
  const float kLow = -87.33654f, kHigh = 89.0f, kMagic = 12582912.0f;  // 1.5 * 2^23
  const VecF safe = min(splat(kHigh), max(splat(kLow), x));
  const VecF n = (safe * 1.44269504f + kMagic) - kMagic;
  const VecF r = safe - n * 0.693359375f - n * -2.12194440e-4f;
  VecF p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return x < splat(kLow) ? VecF{} : scale_by_power(p, n);
}

VCC_INLINE VecF tanh(VecF x) {
  const VecF magnitude = x < 0.0f ? -x : x;
  const VecF e = exp(-2.0f * magnitude);
  const VecF t = (1.0f - e) / (1.0f + e);
  return x < 0.0f ? -t : t;
}

}  // namespace VCC_ISA
}  // namespace vcc
