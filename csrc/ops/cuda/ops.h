// The operators on CUDA tensors. Schemas are those of the CPU: engine/ops/schemas.py.
#pragma once

#include <optional>
#include <tuple>

#include "launch.h"

namespace vcc::cuda {

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, double weight_offset);
std::tuple<Tensor, Tensor> fused_add_rms_norm(const Tensor& x, const Tensor& residual,
                                              const Tensor& weight, double eps,
                                              double weight_offset);
Tensor rms_norm_quant(const Tensor& x, const Tensor& weight, const Tensor& scale, double eps,
                      double weight_offset);
std::tuple<Tensor, Tensor> fused_add_rms_norm_quant(const Tensor& x, const Tensor& residual,
                                                    const Tensor& weight, const Tensor& scale,
                                                    double eps, double weight_offset);
std::tuple<Tensor, Tensor> rms_norm_quant_dynamic(const Tensor& x, const Tensor& weight, double eps,
                                                  double weight_offset, int64_t block_size,
                                                  double least);
std::tuple<Tensor, Tensor, Tensor> fused_add_rms_norm_quant_dynamic(
    const Tensor& x, const Tensor& residual, const Tensor& weight, double eps, double weight_offset,
    int64_t block_size, double least);
Tensor silu_and_mul(const Tensor& x);
Tensor gelu_and_mul(const Tensor& x, bool tanh);
Tensor silu_and_mul_quant(const Tensor& x, const Tensor& scale);
Tensor gelu_and_mul_quant(const Tensor& x, const Tensor& scale, bool tanh);
std::tuple<Tensor, Tensor> silu_and_mul_quant_dynamic(const Tensor& x, int64_t block_size,
                                                      double least);
std::tuple<Tensor, Tensor> gelu_and_mul_quant_dynamic(const Tensor& x, bool tanh,
                                                      int64_t block_size, double least);
std::tuple<Tensor, Tensor> rotary_embedding(const Tensor& q, const Tensor& k, const Tensor& cos,
                                            const Tensor& sin, int64_t head_dim);
std::tuple<Tensor, Tensor> qk_norm_rope(const Tensor& q, const Tensor& k, const Tensor& q_weight,
                                        const Tensor& k_weight, const Tensor& cos,
                                        const Tensor& sin, int64_t head_dim, double eps,
                                        double weight_offset);
void kv_write(const Tensor& k, const Tensor& v, const Tensor& kv_cache, const Tensor& slot_mapping,
              std::optional<Tensor> kv_scale);
void rope_kv_write(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos,
                   const Tensor& sin, const Tensor& kv_cache, const Tensor& slot_mapping,
                   const Tensor& q_out, int64_t head_dim, std::optional<Tensor> kv_scale);
std::tuple<Tensor, Tensor> topk_softmax(const Tensor& logits, int64_t top_k, bool renormalise);
std::tuple<Tensor, Tensor> topk_sigmoid(const Tensor& logits, int64_t top_k, bool renormalise);

}  // namespace vcc::cuda
