#include "recorder/calls.h"

namespace vcc::recorder {

CUstream stream() {
  static CUstream made = nullptr;
  if (made == nullptr) VCC_CU(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
  return made;
}

}  // namespace vcc::recorder
