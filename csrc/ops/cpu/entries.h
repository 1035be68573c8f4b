// The kernels of one instruction set, by element type; table.cpp puts them into a Kernels value.
#pragma once

#include "kernels.h"
#include "vec.h"

namespace vcc {
namespace VCC_ISA {

template <class T>
void norm(const NormArgs&, int64_t begin, int64_t end);
template <class T, Activation A>
void gated(const GatedArgs&, int64_t begin, int64_t end);
template <class T>
void quantise(const QuantArgs&, int64_t begin, int64_t end);
template <class T>
void rotary(const RotaryArgs&, int64_t begin, int64_t end);
int64_t attention_scratch(const AttentionArgs&, int64_t rows);
int64_t attention_partial(const AttentionArgs&, int64_t rows);
template <class T, class K>
void attend(const AttentionArgs&, const AttentionTile&, int64_t kv_head, int64_t chunk,
            float* scratch, float* partials);
template <class T>
void merge(const AttentionArgs&, const AttentionTile&, int64_t kv_head, float* partials);
template <class T>
void route(const RouterArgs&, int64_t begin, int64_t end, float* scratch);
void unscale(const UnscaleArgs&, int64_t begin, int64_t end);
int64_t scaled_scratch(const ScaledArgs&, int64_t columns);
template <class T>
void scaled(const ScaledArgs&, int64_t column, int64_t columns, float* scratch);
template <class T>
void gate_row(const float* x, void* y, int64_t width);
void add_row(float* sum, const float* x, float factor, int64_t count);
template <class T>
void round_row(const float* x, void* y, int64_t width);
template <class T>
void expert_up(const ExpertsArgs&, const ExpertTile&, float* scratch);
template <class T>
void expert_down(const ExpertsArgs&, const ExpertTile&, float* scratch);
template <class T>
void lora_shrink(const LoraArgs&, const LoraTile&);
template <class T>
void lora_expand(const LoraArgs&, const LoraTile&);

}  // namespace VCC_ISA
}  // namespace vcc
