// vcc::silu_and_mul_quant_dynamic: a scale a row, or one for each 128 values.
#include "entry.cuh"
#include "gate.cuh"

#define FORM(threads, blocks, form, kind, kept, share, name, T)                                  \
  VCC_KERNEL(threads, blocks, vcc_silu_and_mul_quant_##form##_##name, const T* x, vcc::fp8* out, \
             float* scales, int rows, int width, int share, int64_t x_stride, float least) {     \
    vcc::Gated<T> g{};                                                                           \
    g.x = x, g.quantised = out, g.scales = scales;                                               \
    g.rows = rows, g.width = width, g.share = share, g.x_stride = x_stride, g.least = least;     \
    vcc::gate<kind, kept>(g, vcc::Silu{});                                                       \
  }
#define ROW(name, T, kept, threads, blocks) \
  FORM(threads, blocks, row, vcc::Quant::kRow, kept, row_threads, name, T)
#define PART(name, T) FORM(256, 5, block, vcc::Quant::kBlock, vcc::kTogether, row_blocks, name, T)
VCC_EACH_GATED_ROW(ROW)
VCC_EACH_TYPE(PART)
