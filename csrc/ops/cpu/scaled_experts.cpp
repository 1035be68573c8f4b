// What stands between the products of experts with fp8 weights; those are in scaled.cpp.
#include "entries.h"

namespace vcc {
namespace VCC_ISA {

// y = silu(x[i]) * x[width + i], rounded to T.
template <class T>
void gate_row(const float* x, void* y, int64_t width) {
  const auto join = [](VecF gate, VecF up) { return gate / (1.0f + exp(-gate)) * up; };
  T* to = static_cast<T*>(y);
  const float* ups = x + width;
  const int64_t whole = width / kWidth * kWidth;
  for (int64_t i = 0; i < whole; i += kWidth) store(to + i, join(load(x + i), load(ups + i)));
  if (const int rest = static_cast<int>(width - whole)) {
    store_part(to + whole, join(load_part(x + whole, rest), load_part(ups + whole, rest)), rest);
  }
}

void add_row(float* sum, const float* x, float factor, int64_t count) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store(sum + i, load(sum + i) + load(x + i) * factor);
  for (; i < count; ++i) sum[i] += x[i] * factor;
}

template <class T>
void round_row(const float* x, void* y, int64_t width) {
  T* to = static_cast<T*>(y);
  int64_t i = 0;
  for (; i + kWidth <= width; i += kWidth) store(to + i, load(x + i));
  for (; i < width; ++i) put(to + i, x[i]);
}

template void gate_row<float>(const float*, void*, int64_t);
template void gate_row<BF16>(const float*, void*, int64_t);
template void round_row<float>(const float*, void*, int64_t);
template void round_row<BF16>(const float*, void*, int64_t);

}  // namespace VCC_ISA
}  // namespace vcc
