// Gated experts in fp32 arithmetic, for every instruction set.
#include "entries.h"
#include "expert_products.h"

namespace vcc {
namespace VCC_ISA {

template <class T>
void expert_up(const ExpertsArgs& e, const ExpertTile& t, float* scratch) {
  up_of<Plain<T>>(e, t, scratch);
}
template <class T>
void expert_down(const ExpertsArgs& e, const ExpertTile& t, float* scratch) {
  down_of<Plain<T>>(e, t, scratch);
}

template void expert_up<float>(const ExpertsArgs&, const ExpertTile&, float*);
template void expert_up<BF16>(const ExpertsArgs&, const ExpertTile&, float*);
template void expert_down<float>(const ExpertsArgs&, const ExpertTile&, float*);
template void expert_down<BF16>(const ExpertsArgs&, const ExpertTile&, float*);

}  // namespace VCC_ISA
}  // namespace vcc
