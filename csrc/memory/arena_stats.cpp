// What an arena counts, as numbers and as JSON.
#include <algorithm>
#include <utility>

#include "memory/arena.h"
#include "memory/arena_tag.h"

namespace vcc {

void Arena::count_memory() {
  ArenaCounters& now = counters_;
  now.live = now.mapped = now.reserved = now.host = 0;
  for (const auto& [_, one] : tags_) {
    now.live += one->live();
    now.mapped += one->mapped();
    for (const Pages* pages : one->pages()) now.reserved += pages->size();
    if (one->kept) now.host += one->kept->bytes();
  }
  now.peak_live = std::max(now.peak_live, now.live);
  now.peak_mapped = std::max(now.peak_mapped, now.mapped);
}

ArenaCounters Arena::counters() {
  const std::lock_guard lock(lock_);
  return counters_;
}

std::string Arena::stats() {
  const std::lock_guard lock(lock_);
  const ArenaCounters& now = counters_;
  const std::pair<const char*, uint64_t> numbers[] = {
      {"allocations", now.allocations},
      {"frees", now.frees},
      {"live", now.live},
      {"peak_live", now.peak_live},
      {"mapped", now.mapped},
      {"peak_mapped", now.peak_mapped},
      {"reserved", now.reserved},
      {"host", now.host},
      {"sleeps", now.sleeps},
      {"wakes", now.wakes},
      {"discards", now.discards},
      {"trims", now.trims},
  };
  std::string text = "{";
  for (const auto& [name, value] : numbers) {
    text += std::string("\"") + name + "\": " + std::to_string(value) + ", ";
  }
  text += "\"tags\": {";
  for (const auto& [name, one] : tags_) {
    text += (text.back() == '{' ? "\"" : ", \"") + name +
            "\": {\"live\": " + std::to_string(one->live()) +
            ", \"mapped\": " + std::to_string(one->mapped()) +
            ", \"asleep\": " + (one->asleep ? "true" : "false") +
            ", \"filled\": " + (one->filled ? "true" : "false") + "}";
  }
  return text + "}}";
}

std::string Arena::times() {
  const std::lock_guard lock(lock_);
  std::string text = "{";
  for (const auto& [name, one] : {std::pair{"sleep", &slept_}, std::pair{"wake", &woke_}}) {
    text += std::string("\"") + name + "\": {\"bytes\": " + std::to_string(one->bytes) +
            ", \"memory\": " + std::to_string(one->memory) +
            ", \"copy\": " + std::to_string(one->copy) +
            ", \"host\": " + std::to_string(one->transfer.host) +
            ", \"link\": " + std::to_string(one->transfer.link) + "}, ";
  }
  return text + "\"ring\": " + std::to_string(ring_ ? ring_->bytes() : 0) +
         ", \"threads\": " + std::to_string(ring_ ? ring_->threads() : 0) + "}";
}

}  // namespace vcc
