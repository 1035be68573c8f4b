// What this process has mapped, as /proc tells it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vcc::recorder {

struct Mapping {
  uint64_t start, end;  // [start, end)
  std::string modes;    // such as r-xp
  std::string name;     // of a file, or such as [heap]; empty for memory of no file
};

// Ascending; none where there is no /proc.
std::vector<Mapping> read_mappings();

}  // namespace vcc::recorder
