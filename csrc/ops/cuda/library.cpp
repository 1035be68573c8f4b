// Registers the CUDA implementations; a torch for the CPU never calls them.
#include <torch/csrc/stable/library.h>

#include "names.h"
#include "ops.h"

STABLE_TORCH_LIBRARY_IMPL(vcc, CUDA, m) {
#define VCC_REGISTER(name) m.impl(#name, TORCH_BOX(&vcc::cuda::name));
  VCC_CUDA_OPERATORS(VCC_REGISTER)
#undef VCC_REGISTER
}

STABLE_TORCH_LIBRARY_IMPL(vcc, CPU, m) {
  m.impl("add_cuda_kernel", TORCH_BOX(&vcc::cuda::add_kernel));
  m.impl("use_cuda_driver", TORCH_BOX(&vcc::cuda::use_driver));
}
