// Registers the CPU implementations; the schemas must have been defined before (in Python).
#include <torch/csrc/stable/library.h>

#include "ops.h"

STABLE_TORCH_LIBRARY_IMPL(vcc, CPU, m) {
  m.impl("rms_norm", TORCH_BOX(&vcc::rms_norm));
  m.impl("fused_add_rms_norm", TORCH_BOX(&vcc::fused_add_rms_norm));
  m.impl("silu_and_mul", TORCH_BOX(&vcc::silu_and_mul));
  m.impl("rotary_embedding", TORCH_BOX(&vcc::rotary_embedding));
  m.impl("kv_write", TORCH_BOX(&vcc::kv_write));
  m.impl("paged_attention", TORCH_BOX(&vcc::paged_attention));
  m.impl("topk_softmax", TORCH_BOX(&vcc::topk_softmax));
  m.impl("moe_experts", TORCH_BOX(&vcc::moe_experts));
}
