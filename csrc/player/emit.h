// What the parts of an expander share: whose nodes are emitted, and how a launch gets its parameter
// block. Included by its sources only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "player/expand.h"

namespace vcc {

struct Expander::Source {
  const Table& table;
  const std::vector<Shape>& shapes;
  std::vector<uint64_t> bases;  // of its regions
  std::vector<int64_t> values;  // of its expressions
};

// Operands of a product by the index of an OPERAND region: address, and bytes up to the end of its
// region.
struct Expander::Operands {
  Place places[table::kOperands];
};

[[noreturn]] void refuse_launch(uint32_t node, const std::string& why);

// Throws for a size outside the launch limits.
void set_grid(Launch& launch, int axis, int64_t size);

// Zeroed parameter block of a kernel; entries of `pointers` are offsets until all are known.
std::span<std::byte> reserve(Launch& launch, Expansion& out);

inline uint32_t end_of(const Expansion& out) { return static_cast<uint32_t>(out.launches.size()); }

}  // namespace vcc
