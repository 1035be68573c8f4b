// vcc::fused_add_rms_norm_quant
#include "entry.cuh"
#include "norm.cuh"

#define KERNEL(name, T, kept, threads, blocks)                                                \
  VCC_KERNEL(threads, VCC_TIGHT(blocks), vcc_fused_add_rms_norm_quant_##name, const T* x,     \
             const T* residual, const T* weight, const float* scale, vcc::fp8* out, T* total, \
             int rows, int width, int row_threads, int64_t x_stride, int64_t residual_stride, \
             float eps, float weight_offset) {                                                \
    vcc::Norm<T> n{};                                                                         \
    n.x = x, n.residual = residual, n.weight = weight, n.scale = scale;                       \
    n.quantised = out, n.total = total;                                                       \
    n.rows = rows, n.width = width, n.row_threads = row_threads;                              \
    n.x_stride = x_stride, n.residual_stride = residual_stride;                               \
    n.eps = eps, n.offset = weight_offset;                                                    \
    vcc::norm<vcc::Quant::kStatic, true, kept>(n);                                            \
  }
VCC_EACH_ROW(KERNEL)
