// silu(gate) * up by row, in fp32, rounded once.
#include "entries.h"

namespace vcc {
namespace VCC_ISA {
namespace {

VCC_INLINE VecF gated(VecF gate, VecF up) { return gate / (1.0f + exp(-gate)) * up; }

}  // namespace

template <class T>
void silu_and_mul(const GatedArgs& a, int64_t begin, int64_t end) {
  const int64_t whole = a.dim / kWidth * kWidth;
  const int rest = static_cast<int>(a.dim - whole);
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = static_cast<const T*>(a.x) + row * a.x_stride;
    const T* up = gate + a.dim;
    T* y = static_cast<T*>(a.y) + row * a.dim;
    for (int64_t i = 0; i < whole; i += kWidth) store(y + i, gated(load(gate + i), load(up + i)));
    if (rest) {
      const VecF last = gated(load_part(gate + whole, rest), load_part(up + whole, rest));
      store_part(y + whole, last, rest);
    }
  }
}

template void silu_and_mul<float>(const GatedArgs&, int64_t, int64_t);
template void silu_and_mul<BF16>(const GatedArgs&, int64_t, int64_t);

}  // namespace VCC_ISA
}  // namespace vcc
