// act(gate) * up by row, in fp32, rounded once.
#include "entries.h"

namespace vcc {
namespace VCC_ISA {
namespace {

// Within 2e-7: Abramowitz and Stegun 7.1.26, as torch's own kernels do it.
VCC_INLINE VecF erf(VecF x) {
  const VecF magnitude = x < 0.0f ? -x : x;
  const VecF t = 1.0f / (magnitude * 0.3275911f + 1.0f);
  VecF p = splat(1.061405429f);
  p = p * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const VecF e = 1.0f - p * t * exp(-x * x);
  return x < 0.0f ? -e : e;
}

template <Activation A>
VCC_INLINE VecF act(VecF x) {
  if constexpr (A == kSilu) return x / (1.0f + exp(-x));
  if constexpr (A == kGelu) return 0.5f * x * (1.0f + erf(x * 0.70710678f));
  return 0.5f * x * (1.0f + tanh(0.79788456f * (x + 0.044715f * (x * x * x))));
}

}  // namespace

template <class T, Activation A>
void gated(const GatedArgs& a, int64_t begin, int64_t end) {
  const int64_t whole = a.dim / kWidth * kWidth;
  const int rest = static_cast<int>(a.dim - whole);
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = static_cast<const T*>(a.x) + row * a.x_stride;
    const T* up = gate + a.dim;
    T* y = static_cast<T*>(a.y) + row * a.dim;
    for (int64_t i = 0; i < whole; i += kWidth) store(y + i, act<A>(load(gate + i)) * load(up + i));
    if (rest) {
      const VecF last = act<A>(load_part(gate + whole, rest)) * load_part(up + whole, rest);
      store_part(y + whole, last, rest);
    }
  }
}

template void gated<float, kSilu>(const GatedArgs&, int64_t, int64_t);
template void gated<BF16, kSilu>(const GatedArgs&, int64_t, int64_t);
template void gated<float, kGelu>(const GatedArgs&, int64_t, int64_t);
template void gated<BF16, kGelu>(const GatedArgs&, int64_t, int64_t);
template void gated<float, kGeluTanh>(const GatedArgs&, int64_t, int64_t);
template void gated<BF16, kGeluTanh>(const GatedArgs&, int64_t, int64_t);

}  // namespace VCC_ISA
}  // namespace vcc
