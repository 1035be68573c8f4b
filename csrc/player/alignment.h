// Where the operands of a table's matrix products start, as far as it is so at every size.
#pragma once

#include <cstdint>
#include <map>

#include "player/gemms.h"

namespace vcc {

// By shape: a number that divides the addresses of all operands of all its products, whatever the
// sizes of the step are, given that regions start at multiples of their own alignment.
std::map<GemmShape, uint64_t> alignments_of(const table::Records& table);

}  // namespace vcc
