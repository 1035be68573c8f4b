#include "recorder/host_words.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string_view>

namespace vcc::recorder {

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
    if (!ranges_.empty() && ranges_.back().second == start) {
      ranges_.back().second = end;
    } else {
      ranges_.emplace_back(start, end);
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
