// Gated experts with products of pairs of bfloat16: for CPUs that have AVX512-BF16.
#include "expert_products.h"

namespace vcc {
namespace VCC_ISA {

extern const ExpertKernels kPairs;
const ExpertKernels kPairs = {up_of<Pairs>, down_of<Pairs>};

}  // namespace VCC_ISA
}  // namespace vcc
