// From records of a table to numbers, at values of its expressions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "table/reader.h"

namespace vcc {

using table::Table;

// Whether a node runs in a step; `uniform`: a pure decode step, one token a sequence; `adapted`: a
// row has an adapter.
inline bool runs(const table::Node& node, bool uniform, bool adapted) {
  if (node.when == table::When::kAdapted) return adapted;
  return node.when == table::When::kAlways || (node.when == table::When::kUniform) == uniform;
}

// The parameters of a node: zeros, then each parameter in order. `bases` are the addresses of all
// regions; `block` has the size that the table says. Error(kGraph) when a 32-bit number of a kernel
// is too large.
void fill(const table::Records& records, const table::Node& node, std::span<const int64_t> values,
          std::span<const uint64_t> bases, std::span<std::byte> block);

// Bytes of a tensor.
uint64_t bytes_of(const table::Records& records, const table::Tensor& tensor,
                  std::span<const int64_t> values);

}  // namespace vcc
