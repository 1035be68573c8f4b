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

  // An address in one of them, above what sizes and counts look like.
  bool contains(uint64_t word) const { return word >= kLowest && is_mapped(word); }

  // A word whose lower half is that of an address in one of them.
  bool contains_low(uint64_t word) const;

 private:
  using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;  // [start, end), ascending

  static constexpr uint64_t kLowest = 1ull << 32;

  void add_low(uint64_t start, uint64_t end);
  bool is_mapped(uint64_t address) const;

  Ranges ranges_;
  Ranges low_;  // the lower halves of their addresses, in any order
};

}  // namespace vcc::recorder
