// vcc::fused_add_rms_norm
#include "entry.cuh"
#include "norm.cuh"

#define KERNEL(name, T, kept, threads, blocks)                                              \
  VCC_KERNEL(threads, blocks, vcc_fused_add_rms_norm_##name, const T* x, const T* residual, \
             const T* weight, T* out, T* total, int rows, int width, int row_threads,       \
             int64_t x_stride, int64_t residual_stride, float eps, float weight_offset) {   \
    vcc::Norm<T> n{};                                                                       \
    n.x = x, n.residual = residual, n.weight = weight, n.out = out, n.total = total;        \
    n.rows = rows, n.width = width, n.row_threads = row_threads;                            \
    n.x_stride = x_stride, n.residual_stride = residual_stride;                             \
    n.eps = eps, n.offset = weight_offset;                                                  \
    vcc::norm<vcc::Quant::kNone, true, kept>(n);                                            \
  }
VCC_EACH_ROW(KERNEL)
