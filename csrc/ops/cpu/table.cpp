// One table per instruction set: this file is compiled once for each.
#include "entries.h"

namespace vcc {
namespace VCC_ISA {

extern const Kernels kTable;
const Kernels kTable = {
    {norm<float>, norm<BF16>},
    {{gated<float, kSilu>, gated<BF16, kSilu>},
     {gated<float, kGelu>, gated<BF16, kGelu>},
     {gated<float, kGeluTanh>, gated<BF16, kGeluTanh>}},
    {quantise<float>, quantise<BF16>},
    {rotary<float>, rotary<BF16>},
    attention_scratch,
    attention_partial,
    {{attend<float, float>, attend<BF16, BF16>}, {attend<float, Fp8>, attend<BF16, Fp8>}},
    {merge<float>, merge<BF16>},
    {route<float>, route<BF16>},
    {{expert_up<float>, expert_down<float>}, {expert_up<BF16>, expert_down<BF16>}},
    unscale,
    scaled_scratch,
    {scaled<float>, scaled<BF16>},
    {gate_row<float>, gate_row<BF16>},
    add_row,
    {round_row<float>, round_row<BF16>},
    {lora_shrink<float>, lora_shrink<BF16>},
    {lora_expand<float>, lora_expand<BF16>},
};

}  // namespace VCC_ISA
}  // namespace vcc
