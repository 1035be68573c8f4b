// RMS norm of rows, with or without the residual addition before it.
#include "entries.h"
#include "vec.h"

namespace vcc {
namespace VCC_ISA {
namespace {

// One row: read (and add), keep the sum of squares in fp32, then scale. The sum is rounded to the
// tensor's type before it is squared, as the next layer will read it.
template <class T>
void norm_row(const NormArgs& a, const T* x, const T* residual, T* y, T* sum) {
  const T* weight = static_cast<const T*>(a.weight);
  const int64_t whole = a.dim / kWidth * kWidth;
  const int rest = static_cast<int>(a.dim - whole);
  const T* source = residual ? sum : x;
  VecF total{}, second{};
  for (int64_t i = 0; i < whole; i += kWidth) {
    if (residual) store(sum + i, load(x + i) + load(residual + i));
    const VecF v = load(source + i);
    if (i / kWidth % 2) {
      second += v * v;
    } else {
      total += v * v;
    }
  }
  if (rest) {
    if (residual) {
      store_part(sum + whole, load_part(x + whole, rest) + load_part(residual + whole, rest), rest);
    }
    const VecF v = load_part(source + whole, rest);
    second += v * v;
  }
  const float mean = sum_lanes(total + second) / static_cast<float>(a.dim);
  const float scale = 1.0f / __builtin_sqrtf(mean + a.eps);
  for (int64_t i = 0; i < whole; i += kWidth) {
    store(y + i, load(source + i) * scale * (load(weight + i) + a.offset));
  }
  if (rest) {
    const VecF w = load_part(weight + whole, rest) + a.offset;
    store_part(y + whole, load_part(source + whole, rest) * scale * w, rest);
  }
}

}  // namespace

template <class T>
void norm(const NormArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* residual = static_cast<const T*>(a.residual);
    T* sum = static_cast<T*>(a.sum);
    norm_row(a, static_cast<const T*>(a.x) + row * a.x_stride,
             residual ? residual + row * a.residual_stride : nullptr,
             static_cast<T*>(a.y) + row * a.dim, sum ? sum + row * a.dim : nullptr);
  }
}

template void norm<float>(const NormArgs&, int64_t, int64_t);
template void norm<BF16>(const NormArgs&, int64_t, int64_t);

}  // namespace VCC_ISA
}  // namespace vcc
