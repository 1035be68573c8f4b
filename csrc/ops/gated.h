// The arguments of a gated activation, checked.
#pragma once

#include "rows.h"

namespace vcc {

struct Gated {
  Rows rows;
  Activation act;
  Dtype dtype;

  int64_t width() const { return rows.width / 2; }
  GatedArgs into(void* y) const { return {rows.data(), y, width(), rows.stride}; }
  auto kernel() const { return kernels().gated[act][dtype]; }
};

inline Gated gated_of(const Tensor& x, Activation act, const char* op) {
  const Dtype dtype = dtype_of(x, op, "x");
  const Rows rows = rows_of(x, op, "x");
  VCC_CHECK(rows.width % 2 == 0, op, ": the last dimension of x must be even, it is ", rows.width);
  return {rows, act, dtype};
}

}  // namespace vcc
