// Tensors seen as rows of the last dimension, and loops over rows on torch's threads.
#pragma once

#include <algorithm>

#include "check.h"

namespace vcc {

// Elements a thread should have at least before another one is worth waking.
constexpr int64_t kGrain = 32768;

struct Rows {
  Tensor tensor;  // keeps a copy alive where one had to be made
  int64_t count, width, stride;
  const void* data() const { return tensor.const_data_ptr(); }
};

// Any number of leading dimensions. Two dimensions may have any row stride; more are copied when
// they are not contiguous.
inline Rows rows_of(const Tensor& t, const char* op, const char* name) {
  VCC_CHECK(t.dim() >= 1, op, ": ", name, " must have at least one dimension");
  check_layout(t, t.dim(), op, name);
  const int64_t width = t.size(t.dim() - 1);
  const int64_t count = width ? t.numel() / width : 0;
  if (t.dim() == 2) return {t, count, width, t.stride(0)};
  return {t.is_contiguous() ? t : torch::stable::contiguous(t), count, width, width};
}

template <class F>
void for_rows(int64_t count, int64_t width, const F& body) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width));
  if (count <= grain) {
    body(0, count);
  } else {
    torch::stable::parallel_for(0, count, grain, body);
  }
}

}  // namespace vcc
