// A step of fixed sizes as launches: what `Expander` makes of a table and what graphs and plain
// launches are made from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "driver/cuda_types.h"

namespace vcc {

// A loaded kernel; `slots` are the driver's own words for where each parameter lies.
struct Function {
  struct Slot {
    uint32_t offset;
    uint32_t bytes;
  };

  CUfunction handle = nullptr;
  std::string name;
  uint32_t param_bytes = 0;
  std::vector<Slot> slots;
};

// How a kernel is launched, apart from its grid and parameters.
struct Shape {
  const Function* function = nullptr;
  uint32_t block[3] = {1, 1, 1};
  uint32_t shared = 0;
  std::vector<CUlaunchAttribute> attributes;
};

enum class LaunchKind : uint8_t { kKernel, kMemset, kMemcpy, kEmpty };

struct Launch {
  LaunchKind kind = LaunchKind::kEmpty;
  uint32_t node = 0;  // of the table, for messages
  // Kernel.
  const Shape* shape = nullptr;
  uint32_t grid[3] = {1, 1, 1};
  uint64_t block = 0;     // first byte of its parameters in `Expansion::blocks`
  uint64_t pointers = 0;  // first of its entries in `Expansion::pointers`
  // Memset and memcpy.
  uint64_t target = 0, source = 0, width = 0, height = 1, pitch = 0;
  uint32_t value = 0, element = 1;
};

struct LaunchEdge {
  uint32_t from, to;
  uint8_t type, from_port, to_port;
};

// Launches of one segment of the table: [first, first + count).
struct Run {
  uint32_t segment;
  uint32_t first;
  uint32_t count;
};

struct Expansion {
  std::vector<Launch> launches;
  std::vector<std::byte> blocks;
  std::vector<void*> pointers;  // of parameters into `blocks`, in the order of the slots
  // In a chain: only those of neighbours that carry data. Otherwise all of them.
  std::vector<LaunchEdge> edges;
  std::vector<Run> runs;
  bool chain = true;

  uint64_t bytes() const {
    return launches.size() * sizeof(Launch) + blocks.size() + pointers.size() * sizeof(void*) +
           edges.size() * sizeof(LaunchEdge) + runs.size() * sizeof(Run);
  }
};

// The sizes of a step and which parts of the table belong to it.
struct Step {
  int64_t tokens = 0;
  int64_t seqs = 0;
  bool uniform = false;
  bool sample = false;
  bool advance = false;
  bool adapted = false;

  auto operator<=>(const Step&) const = default;
};

}  // namespace vcc
