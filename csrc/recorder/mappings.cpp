#include "recorder/mappings.h"

#include <cstdio>
#include <memory>

namespace vcc::recorder {

std::vector<Mapping> read_mappings() {
  std::vector<Mapping> found;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/maps", "re"),
                                                             &std::fclose);
  char line[4352];  // a path may be as long as PATH_MAX
  while (file != nullptr && std::fgets(line, sizeof line, file.get()) != nullptr) {
    unsigned long start = 0, end = 0;
    char modes[5] = {};
    int at = 0;
    if (std::sscanf(line, "%lx-%lx %4s %*s %*s %*s %n", &start, &end, modes, &at) < 3) continue;
    std::string name(line + at);
    if (name.ends_with('\n')) name.pop_back();
    found.push_back({start, end, modes, std::move(name)});
  }
  return found;
}

}  // namespace vcc::recorder
