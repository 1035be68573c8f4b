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
  m.impl("lora_shrink", TORCH_BOX(&vcc::lora_shrink));
  m.impl("lora_expand", TORCH_BOX(&vcc::lora_expand));
  m.impl("scaled_linear", TORCH_BOX(&vcc::scaled_linear));
  m.impl("scaled_experts", TORCH_BOX(&vcc::scaled_experts));
  m.impl("gelu_and_mul", TORCH_BOX(&vcc::gelu_and_mul));
  m.impl("rms_norm_quant", TORCH_BOX(&vcc::rms_norm_quant));
  m.impl("rms_norm_quant_dynamic", TORCH_BOX(&vcc::rms_norm_quant_dynamic));
  m.impl("fused_add_rms_norm_quant", TORCH_BOX(&vcc::fused_add_rms_norm_quant));
  m.impl("fused_add_rms_norm_quant_dynamic", TORCH_BOX(&vcc::fused_add_rms_norm_quant_dynamic));
  m.impl("silu_and_mul_quant", TORCH_BOX(&vcc::silu_and_mul_quant));
  m.impl("silu_and_mul_quant_dynamic", TORCH_BOX(&vcc::silu_and_mul_quant_dynamic));
  m.impl("gelu_and_mul_quant", TORCH_BOX(&vcc::gelu_and_mul_quant));
  m.impl("gelu_and_mul_quant_dynamic", TORCH_BOX(&vcc::gelu_and_mul_quant_dynamic));
  m.impl("qk_norm_rope", TORCH_BOX(&vcc::qk_norm_rope));
  m.impl("rope_kv_write", TORCH_BOX(&vcc::rope_kv_write));
  m.impl("paged_attention_quant", TORCH_BOX(&vcc::paged_attention_quant));
}
