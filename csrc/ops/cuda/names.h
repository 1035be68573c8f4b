// Every operator that csrc/kernels has: APPLY(name) for each.
#pragma once

#define VCC_CUDA_OPERATORS(APPLY)         \
  APPLY(rms_norm)                         \
  APPLY(fused_add_rms_norm)               \
  APPLY(rms_norm_quant)                   \
  APPLY(fused_add_rms_norm_quant)         \
  APPLY(rms_norm_quant_dynamic)           \
  APPLY(fused_add_rms_norm_quant_dynamic) \
  APPLY(silu_and_mul)                     \
  APPLY(gelu_and_mul)                     \
  APPLY(silu_and_mul_quant)               \
  APPLY(gelu_and_mul_quant)               \
  APPLY(silu_and_mul_quant_dynamic)       \
  APPLY(gelu_and_mul_quant_dynamic)       \
  APPLY(rotary_embedding)                 \
  APPLY(qk_norm_rope)                     \
  APPLY(kv_write)                         \
  APPLY(rope_kv_write)                    \
  APPLY(topk_softmax)                     \
  APPLY(topk_sigmoid)
