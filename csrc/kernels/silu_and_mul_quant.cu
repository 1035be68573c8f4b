// vcc::silu_and_mul_quant
#include "entry.cuh"
#include "gate.cuh"

#define KERNEL(name, T)                                                                            \
  VCC_KERNEL(256, 5, vcc_silu_and_mul_quant_##name, const T* x, const float* scale, vcc::fp8* out, \
             int rows, int width, int row_blocks, int64_t x_stride) {                              \
    vcc::Gated<T> g{};                                                                             \
    g.x = x, g.scale = scale, g.quantised = out;                                                   \
    g.rows = rows, g.width = width, g.row_blocks = row_blocks, g.x_stride = x_stride;              \
    vcc::gate<vcc::Quant::kStatic>(g, vcc::Silu{});                                                \
  }
VCC_EACH_TYPE(KERNEL)
