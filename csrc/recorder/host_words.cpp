#include "recorder/host_words.h"

#include <algorithm>
#include <iterator>

#include "recorder/mappings.h"

namespace vcc::recorder {

HostWords::HostWords() {
  for (const Mapping& one : read_mappings()) {
    const bool is_private = one.modes.starts_with('r') && one.modes.ends_with('p');
    if (!is_private || one.name.starts_with("/dev/")) continue;
    if (!ranges_.empty() && ranges_.back().second == one.start) {
      ranges_.back().second = one.end;
    } else {
      ranges_.emplace_back(one.start, one.end);
    }
  }
}

bool HostWords::contains(uint64_t word) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), word,
                       [](uint64_t at, const auto& range) { return at < range.first; });
  return after != ranges_.begin() && word < std::prev(after)->second;
}

}  // namespace vcc::recorder
