#include "recorder/spread.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "abi/error.h"
#include "recorder/mappings.h"

namespace vcc::recorder {

namespace {

constexpr uint64_t kPage = 4096;
constexpr size_t kHeader = 8;           // of malloc's, in front of a block
constexpr size_t kLargest = 16u << 20;  // malloc maps what is larger, or much sooner
constexpr size_t kSmall = 1024;         // below, a free list for each size
constexpr size_t kStep = 16;
constexpr size_t kBlock = 64u << 10;  // never mapped apart

void* volatile last_taken = nullptr;  // or a compiler may leave out blocks that nobody uses

uint64_t take(size_t bytes) {
  void* const block = std::malloc(bytes);
  if (block == nullptr) {
    throw Error(Code::kDevice, "the recorder has no memory",
                "malloc of " + std::to_string(bytes) + " bytes failed",
                "record without limits on memory (ulimit -d, ulimit -v)");
  }
  last_taken = block;
  return reinterpret_cast<uint64_t>(block);
}

// What lies below the stack, in order.
std::vector<Mapping> below_stack() {
  std::vector<Mapping> all = read_mappings();
  const auto here = reinterpret_cast<uint64_t>(&all);
  const auto stack = std::find_if(all.begin(), all.end(), [&](const Mapping& one) {
    return one.name == "[stack]" || (one.start <= here && here < one.end);
  });
  all.erase(stack, all.end());
  return all;
}

bool is_heap(const Mapping& one) { return one.name == "[heap]"; }

struct Span {
  uint64_t start = 0, end = 0;
};

// The heap that grows: none where malloc has only mappings.
Span heap() {
  Span found;
  for (const Mapping& one : below_stack()) {
    if (!is_heap(one)) continue;
    if (found.end == 0) found.start = one.start;
    found.end = one.end;
  }
  return found;
}

// Blocks of one size until one lies apart from the heap as it was: behind its end, or in a mapping
// of its own, which lies below the heap where the stack has no limit. So no more is taken than the
// heap had.
void use_up(size_t bytes, const Span& heap) {
  for (uint64_t at = take(bytes); heap.start <= at && at < heap.end; at = take(bytes)) {
  }
}

// Addresses without memory: nothing is counted against a limit of memory.
void* map_nothing(uint64_t wish, uint64_t bytes, int how) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  return mmap(reinterpret_cast<void*>(wish), bytes, PROT_NONE, kFlags | how, -1, 0);
}

// All holes but those in which the heap and the mappings grow. They grow towards each other in one,
// or each in its own where the stack has no limit.
void fill_holes() {
  const std::vector<Mapping> all = below_stack();
  uint64_t largest = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    largest = std::max(largest, all[i].start - all[i - 1].end);
  }
  for (size_t i = 1; i < all.size(); ++i) {
    const uint64_t end = all[i - 1].end, hole = all[i].start - end;
    if (hole == 0 || hole >= largest / 4 || is_heap(all[i - 1])) continue;
    map_nothing(end, hole, MAP_FIXED_NOREPLACE);  // a hole that is gone is no fault
  }
}

}  // namespace

void spread_heap(uint64_t bytes) {
  const Span before = heap();
  // Larger sizes first: what is left of a block is smaller than its size.
  for (size_t size = kLargest; size > kSmall; size /= 2) use_up(size - kHeader, before);
  for (size_t size = kSmall; size > kStep; size -= kStep) use_up(size - kHeader, before);
  for (; bytes >= kBlock; bytes -= kBlock) take(kBlock - kHeader);
  if (bytes > 2 * kStep) take(bytes - kHeader);
}

void spread_mappings(uint64_t bytes) {
  fill_holes();
  const uint64_t size = (bytes + kPage - 1) / kPage * kPage;
  if (size == 0 || map_nothing(0, size, 0) != MAP_FAILED) return;
  throw Error(Code::kDevice, "the recorder cannot have the addresses it needs",
              "mmap of " + std::to_string(size >> 20) + " MiB: " + std::strerror(errno),
              "record without a limit on virtual memory (ulimit -v)");
}

}  // namespace vcc::recorder
