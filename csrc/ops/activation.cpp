// vcc::silu_and_mul.
#include <vector>

#include "ops.h"
#include "rows.h"

namespace vcc {

Tensor silu_and_mul(const Tensor& x) {
  const char* op = "silu_and_mul";
  const Dtype dtype = dtype_of(x, op, "x");
  const Rows rows = rows_of(x, op, "x");
  VCC_CHECK(rows.width % 2 == 0, op, ": the last dimension of x must be even, it is ", rows.width);
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() /= 2;
  const Tensor y = torch::stable::new_empty(x, sizes);
  const GatedArgs args{rows.data(), y.mutable_data_ptr(), rows.width / 2, rows.stride};
  for_rows(rows.count, rows.width,
           [&](int64_t begin, int64_t end) { kernels().silu_and_mul[dtype](args, begin, end); });
  return y;
}

}  // namespace vcc
