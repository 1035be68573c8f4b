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

  // A word whose lower half is an address below that: a program that is not position-independent
  // has its code and heap there.
  bool contains_low(uint64_t word) const { return is_mapped(word % kLowest); }

 private:
  static constexpr uint64_t kLowest = 1ull << 32;

  bool is_mapped(uint64_t address) const;

  std::vector<std::pair<uint64_t, uint64_t>> ranges_;  // [start, end), ascending
};

}  // namespace vcc::recorder
