// Low-rank adapters by row: products with the matrices of the row's slot, in fp32.
#include "entries.h"

namespace vcc {
namespace VCC_ISA {
namespace {

// What is left of a product. Never inlined: compiled beside one row it could be rounded otherwise
// than beside four.
template <class T>
__attribute__((noinline)) float rest(const T* x, const T* a, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += to_float(x[i]) * to_float(a[i]);
  return sum;
}

// The product of each of N rows of x with one row of a matrix, whose values are loaded once.
template <int N, class T>
VCC_INLINE void dots(const T* x, int64_t stride, const T* a, int64_t depth, float* out,
                     int64_t out_stride) {
  VecF sums[N] = {};
  int64_t i = 0;
  for (; i + kWidth <= depth; i += kWidth) {
    const VecF weight = load(a + i);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums[n] += load(x + n * stride + i) * weight;
  }
  const int left = static_cast<int>(depth - i);
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
    out[n * out_stride] = sum_lanes(sums[n]) + rest(x + n * stride + i, a + i, left);
  }
}

// The products of `n` rows of b with one of `low`, as lanes.
template <class T>
VCC_INLINE VecF added(const T* b, const float* low, int64_t rank, int n) {
  VecF rows[kWidth] = {};
  int64_t k = 0;
  for (; k + kWidth <= rank; k += kWidth) {
    const VecF value = load(low + k);
    for (int i = 0; i < n; ++i) rows[i] += load(b + i * rank + k) * value;
  }
  if (k < rank) {
    const int left = static_cast<int>(rank - k);
    const VecF value = load_part(low + k, left);
    for (int i = 0; i < n; ++i) rows[i] += load_part(b + i * rank + k, left) * value;
  }
  return sum_rows(rows);
}

}  // namespace

template <class T>
void lora_shrink(const LoraArgs& a, const LoraTile& tile) {
  const T* x = static_cast<const T*>(a.x) + tile.row * a.x_stride;
  const T* matrix = static_cast<const T*>(a.matrix) + tile.slot * a.width * a.depth;
  float* low = a.low + tile.row * a.low_stride;
  for (int64_t j = tile.column; j < tile.column + tile.columns; ++j) {
    const T* row = matrix + j * a.depth;
    switch (tile.rows) {
      case 4:
        dots<4>(x, a.x_stride, row, a.depth, low + j, a.low_stride);
        break;
      case 3:
        dots<3>(x, a.x_stride, row, a.depth, low + j, a.low_stride);
        break;
      case 2:
        dots<2>(x, a.x_stride, row, a.depth, low + j, a.low_stride);
        break;
      default:
        dots<1>(x, a.x_stride, row, a.depth, low + j, a.low_stride);
    }
  }
}

template <class T>
void lora_expand(const LoraArgs& a, const LoraTile& tile) {
  const T* matrix = static_cast<const T*>(a.matrix) + tile.slot * a.width * a.depth;
  for (int64_t row = tile.row; row < tile.row + tile.rows; ++row) {
    const T* y = static_cast<const T*>(a.x) + row * a.x_stride;
    T* out = static_cast<T*>(a.out) + row * a.width;
    const float* low = a.low + row * a.low_stride + tile.part * a.depth;
    for (int64_t j = tile.column; j < tile.column + tile.columns; j += kWidth) {
      const int64_t left = tile.column + tile.columns - j;
      const int n = left < kWidth ? static_cast<int>(left) : kWidth;
      const VecF sum = added(matrix + j * a.depth, low, a.depth, n);
      if (n == kWidth) {
        store(out + j, load(y + j) + sum);
      } else {
        store_part(out + j, load_part(y + j, n) + sum, n);
      }
    }
  }
}

template void lora_shrink<float>(const LoraArgs&, const LoraTile&);
template void lora_shrink<BF16>(const LoraArgs&, const LoraTile&);
template void lora_expand<float>(const LoraArgs&, const LoraTile&);
template void lora_expand<BF16>(const LoraArgs&, const LoraTile&);

}  // namespace VCC_ISA
}  // namespace vcc
