// Where a process allocates on its host from now on: engine/graphs/recorder/spread.py says why.
#pragma once

#include <cstdint>

namespace vcc::recorder {

// Take every free block of malloc's heap, then `bytes` more of it. Nothing is given back: blocks
// are new from then on, and lie `bytes` further on than they would with 0.
void spread_heap(uint64_t bytes);

// Take every hole between the mappings of this process, then `bytes` of addresses without memory,
// so that a new mapping lies `bytes` further on than it would with 0.
void spread_mappings(uint64_t bytes);

}  // namespace vcc::recorder
