// Rotary position embedding by row, halves of each head paired (NeoX), in fp32, rounded once.
#include "entries.h"

namespace vcc {
namespace VCC_ISA {
namespace {

template <class T>
void rotate_head(const RotaryArgs& a, const T* x, T* y, const float* cos, const float* sin) {
  const int64_t whole = a.half / kWidth * kWidth;
  const int rest = static_cast<int>(a.half - whole);
  for (int64_t i = 0; i < whole; i += kWidth) {
    const VecF low = load(x + i), high = load(x + a.half + i), c = load(cos + i), s = load(sin + i);
    store(y + i, low * c - high * s);
    store(y + a.half + i, high * c + low * s);
  }
  if (rest) {
    const VecF low = load_part(x + whole, rest), high = load_part(x + a.half + whole, rest);
    const VecF c = load_part(cos + whole, rest), s = load_part(sin + whole, rest);
    store_part(y + whole, low * c - high * s, rest);
    store_part(y + a.half + whole, high * c + low * s, rest);
  }
  for (int64_t i = 2 * a.half; i < a.head_dim; ++i) y[i] = x[i];
}

}  // namespace

template <class T>
void rotary(const RotaryArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.x) + row * a.x_stride;
    T* y = static_cast<T*>(a.y) + row * a.heads * a.head_dim;
    const float *cos = a.cos + row * a.cos_stride, *sin = a.sin + row * a.sin_stride;
    for (int64_t head = 0; head < a.heads; ++head) {
      rotate_head(a, x + head * a.head_dim, y + head * a.head_dim, cos, sin);
    }
  }
}

template void rotary<float>(const RotaryArgs&, int64_t, int64_t);
template void rotary<BF16>(const RotaryArgs&, int64_t, int64_t);

}  // namespace VCC_ISA
}  // namespace vcc
