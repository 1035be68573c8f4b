// vcc::rms_norm_quant_dynamic: a scale a row, or one for each 128 values.
#include "entry.cuh"
#include "norm.cuh"

#define FORM(form, kind, name, T, kept, threads, blocks)                                           \
  VCC_KERNEL(threads, blocks, vcc_rms_norm_quant_##form##_##name, const T* x, const T* weight,     \
             vcc::fp8* out, float* scales, int rows, int width, int row_threads, int64_t x_stride, \
             float eps, float weight_offset, float least) {                                        \
    vcc::Norm<T> n{};                                                                              \
    n.x = x, n.weight = weight, n.quantised = out, n.scales = scales;                              \
    n.rows = rows, n.width = width, n.row_threads = row_threads, n.x_stride = x_stride;            \
    n.eps = eps, n.offset = weight_offset, n.least = least;                                        \
    vcc::norm<kind, false, kept>(n);                                                               \
  }
#define KERNEL(name, T, kept, threads, blocks)                \
  FORM(row, vcc::Quant::kRow, name, T, kept, threads, blocks) \
  FORM(block, vcc::Quant::kBlock, name, T, kept, threads, VCC_TIGHT(blocks))
VCC_EACH_ROW(KERNEL)
