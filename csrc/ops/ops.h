// The operators as torch calls them. Schemas are defined in engine/ops/schemas.py.
#pragma once

#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <optional>
#include <tuple>
#include <vector>

namespace vcc {

using torch::stable::Tensor;

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, double weight_offset);
std::tuple<Tensor, Tensor> fused_add_rms_norm(const Tensor& x, const Tensor& residual,
                                              const Tensor& weight, double eps,
                                              double weight_offset);
Tensor silu_and_mul(const Tensor& x);
std::tuple<Tensor, Tensor> rotary_embedding(const Tensor& q, const Tensor& k, const Tensor& cos,
                                            const Tensor& sin, int64_t head_dim);
void kv_write(const Tensor& k, const Tensor& v, const Tensor& kv_cache, const Tensor& slot_mapping,
              std::optional<Tensor> kv_scale);
void paged_attention(const Tensor& q, const Tensor& kv_cache, const Tensor& block_table,
                     const Tensor& seq_lens, const Tensor& query_start, const Tensor& out,
                     double scale, int64_t sliding_window, double soft_cap,
                     std::optional<Tensor> kv_scale);
std::tuple<Tensor, Tensor> topk_softmax(const Tensor& logits, int64_t top_k, bool renormalise);
Tensor moe_experts(const Tensor& x, const Tensor& gate_up, const Tensor& down,
                   const Tensor& weights, const Tensor& ids);
Tensor lora_shrink(const Tensor& x, const Tensor& a, const Tensor& slots);
Tensor lora_expand(const Tensor& y, const Tensor& low, const Tensor& b, const Tensor& slots,
                   std::vector<int64_t> widths);
Tensor scaled_linear(const Tensor& x, const Tensor& weight, const Tensor& x_scale,
                     const Tensor& w_scale, std::optional<Tensor> bias, std::vector<int64_t> ranges,
                     torch::headeronly::ScalarType dtype);
Tensor scaled_experts(const Tensor& x, const Tensor& gate_up, const Tensor& down,
                      const Tensor& gate_up_scale, const Tensor& down_scale,
                      std::optional<Tensor> x_scale, std::optional<Tensor> inner_scale,
                      const Tensor& weights, const Tensor& ids, double least);
Tensor gelu_and_mul(const Tensor& x, bool tanh);
Tensor rms_norm_quant(const Tensor& x, const Tensor& weight, const Tensor& scale, double eps,
                      double weight_offset);
std::tuple<Tensor, Tensor> rms_norm_quant_dynamic(const Tensor& x, const Tensor& weight, double eps,
                                                  double weight_offset, int64_t block_size,
                                                  double least);
std::tuple<Tensor, Tensor> fused_add_rms_norm_quant(const Tensor& x, const Tensor& residual,
                                                    const Tensor& weight, const Tensor& scale,
                                                    double eps, double weight_offset);
std::tuple<Tensor, Tensor, Tensor> fused_add_rms_norm_quant_dynamic(
    const Tensor& x, const Tensor& residual, const Tensor& weight, double eps, double weight_offset,
    int64_t block_size, double least);
Tensor silu_and_mul_quant(const Tensor& x, const Tensor& scale);
std::tuple<Tensor, Tensor> silu_and_mul_quant_dynamic(const Tensor& x, int64_t block_size,
                                                      double least);
Tensor gelu_and_mul_quant(const Tensor& x, const Tensor& scale, bool tanh);
std::tuple<Tensor, Tensor> gelu_and_mul_quant_dynamic(const Tensor& x, bool tanh,
                                                      int64_t block_size, double least);
std::tuple<Tensor, Tensor> qk_norm_rope(const Tensor& q, const Tensor& k, const Tensor& q_weight,
                                        const Tensor& k_weight, const Tensor& cos,
                                        const Tensor& sin, int64_t head_dim, double eps,
                                        double weight_offset);
void rope_kv_write(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos,
                   const Tensor& sin, const Tensor& kv_cache, const Tensor& slot_mapping,
                   const Tensor& q_out, int64_t head_dim, std::optional<Tensor> kv_scale);
void paged_attention_quant(const Tensor& q, const Tensor& kv_cache, const Tensor& block_table,
                           const Tensor& seq_lens, const Tensor& query_start, const Tensor& out,
                           const Tensor& out_scale, double scale, int64_t sliding_window,
                           double soft_cap, std::optional<Tensor> kv_scale);

}  // namespace vcc
