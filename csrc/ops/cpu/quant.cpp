// Rows to float8_e4m3fn: scales, the clamp, and torch's rounding to nearest even.
#include "entries.h"

namespace vcc {
namespace VCC_ISA {
namespace {

constexpr float kMost = 448.0f;

// Bits of a value of at most 448, or of NaN. Below 2^-6 the sum with 2^14 rounds: the last bit of
// its mantissa is 2^-9, the smallest step of the type.
VCC_INLINE VecU to_fp8(VecF x) {
  const VecU all = bits_of<VecU>(x), sign = all & 0x80000000u, bits = all ^ sign;
  const VecU small = bits_of<VecU>(bits_of<VecF>(bits) + 16384.0f) - 0x46800000u;
  const VecU normal = (bits + 0xC407FFFFu + ((bits >> 20) & 1)) >> 20;
  const VecI tiny = bits < 0x3C800000u, lost = bits > 0x7F800000u;
  const VecU kept = (small & bits_of<VecU>(tiny)) | (normal & ~bits_of<VecU>(tiny));
  const VecU whole = (kept & ~bits_of<VecU>(lost)) | (0x7Fu & bits_of<VecU>(lost));
  return whole | sign >> 24;
}

VCC_INLINE VecU quotient(VecF x, VecF scale) {
  return to_fp8(min(splat(kMost), max(splat(-kMost), x / scale)));
}

template <class T>
VCC_INLINE void quantise_block(const T* x, uint8_t* q, int64_t dim, float scale) {
  const int64_t whole = dim / kWidth * kWidth;
  const int rest = static_cast<int>(dim - whole);
  for (int64_t i = 0; i < whole; i += kWidth) {
    const VecB bytes = __builtin_convertvector(quotient(load(x + i), splat(scale)), VecB);
    __builtin_memcpy(q + i, &bytes, sizeof(bytes));
  }
  if (rest) {
    const VecU last = quotient(load_part(x + whole, rest), splat(scale));
    for (int i = 0; i < rest; ++i) q[whole + i] = static_cast<uint8_t>(last[i]);
  }
}

// The largest magnitude; NaN where any value is, as torch's amax has it. Magnitudes are compared as
// integers: their order is that of the numbers, and NaN is above all.
template <class T>
VCC_INLINE float most_of(const T* x, int64_t dim) {
  const int64_t whole = dim / kWidth * kWidth;
  VecU most{};
  const auto take = [&](VecF v) {
    const VecU bits = bits_of<VecU>(v) & 0x7FFFFFFFu;
    most = bits > most ? bits : most;
  };
  for (int64_t i = 0; i < whole; i += kWidth) take(load(x + i));
  if (whole < dim) take(load_part(x + whole, static_cast<int>(dim - whole)));
  uint32_t found = 0;
  for (int i = 0; i < kWidth; ++i) found = most[i] > found ? most[i] : found;
  return bits_of<float>(found);
}

}  // namespace

template <class T>
void quantise(const QuantArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * a.x_stride;
    uint8_t* q = a.q + row * a.dim;
    if (a.scale) {
      quantise_block(x, q, a.dim, *a.scale);
      continue;
    }
    float* scales = a.scales + row * (a.dim / a.block);
    for (int64_t i = 0; i < a.dim; i += a.block) {
      const float most = most_of(x + i, a.block);
      const float scale = (most < a.least ? a.least : most) / kMost;
      scales[i / a.block] = scale;
      quantise_block(x + i, q + i, a.block, scale);
    }
  }
}

template void quantise<float>(const QuantArgs&, int64_t, int64_t);
template void quantise<BF16>(const QuantArgs&, int64_t, int64_t);

}  // namespace VCC_ISA
}  // namespace vcc
