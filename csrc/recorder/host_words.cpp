#include "recorder/host_words.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string_view>

namespace vcc::recorder {

namespace {

// Larger mappings have every lower half, or nearly: they would say nothing.
constexpr uint64_t kLargest = 256ull << 20;

}  // namespace

HostWords::HostWords() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/maps", "re"),
                                                             &std::fclose);
  if (file == nullptr) return;
  char line[4352];  // a path may be as long as PATH_MAX
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    unsigned long start = 0, end = 0;
    char modes[5] = {}, path[8] = {};
    if (std::sscanf(line, "%lx-%lx %4s %*s %*s %*s %6s", &start, &end, modes, path) < 3) continue;
    const bool device = std::string_view(path).starts_with("/dev/");
    if (modes[0] != 'r' || modes[3] != 'p' || device) continue;
    add_low(start, end);
    if (!ranges_.empty() && ranges_.back().second == start) {
      ranges_.back().second = end;
    } else {
      ranges_.emplace_back(start, end);
    }
  }
}

void HostWords::add_low(uint64_t start, uint64_t end) {
  if (end - start > kLargest) return;
  const uint64_t low = start % kLowest, size = end - start;
  low_.emplace_back(low, std::min(low + size, kLowest));
  if (low + size > kLowest) low_.emplace_back(0, low + size - kLowest);
}

bool HostWords::contains_low(uint64_t word) const {
  const uint64_t low = word % kLowest;
  return std::any_of(low_.begin(), low_.end(),
                     [low](const auto& range) { return range.first <= low && low < range.second; });
}

bool HostWords::is_mapped(uint64_t word) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), word,
                       [](uint64_t at, const auto& range) { return at < range.first; });
  return after != ranges_.begin() && word < std::prev(after)->second;
}

}  // namespace vcc::recorder
