// Which words are addresses of this process's own code, heap and stacks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace vcc::recorder {

// The readable private mappings of this process when it was made. Memory of the driver is shared or
// not readable, so its addresses are not among them.
class HostWords {
 public:
  HostWords();

  // An address in one of them. Below 4 GiB it may as well be a size or a count: programs that are
  // not position-independent lie there.
  bool contains(uint64_t word) const;

 private:
  std::vector<std::pair<uint64_t, uint64_t>> ranges_;  // [start, end), ascending
};

}  // namespace vcc::recorder
