// What an arena knows of a tag: its heaps and ranges, and what was taken when it fell asleep.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "memory/arena.h"
#include "memory/heap.h"
#include "memory/host_copy.h"

namespace vcc {

inline constexpr size_t kHeaps = 4;  // of a tag, by the size of their blocks

inline size_t round_up(size_t size, size_t to) { return (size + to - 1) / to * to; }

// Chunks of one reservation that had memory when its tag fell asleep.
struct Taken {
  Pages* pages;
  std::vector<size_t> chunks;
};

struct Arena::Range {
  Range(std::shared_ptr<Device> device, size_t size, size_t chunk)
      : pages(std::move(device), size, chunk), size(size) {}
  Pages pages;
  size_t size;
};

struct Arena::Tag {
  std::string name;
  std::unique_ptr<Heap> heaps[kHeaps];
  std::map<CUdeviceptr, std::unique_ptr<Range>> ranges;
  bool asleep = false;
  bool filled = true;  // false: contents were dropped and nobody has written them since
  std::vector<Taken> taken;
  std::unique_ptr<HostCopy> kept;
  size_t plain = 0;  // bytes, off switch

  void awake() {
    asleep = false;
    kept.reset();
    taken.clear();
  }

  // By ascending address.
  std::vector<Pages*> pages() const {
    std::vector<Pages*> all;
    for (const auto& heap : heaps) {
      if (!heap) continue;
      for (Pages* pages : heap->pages()) all.push_back(pages);
    }
    for (const auto& [_, range] : ranges) all.push_back(&range->pages);
    std::sort(all.begin(), all.end(), [](Pages* a, Pages* b) { return a->base() < b->base(); });
    return all;
  }

  size_t mapped() const {
    size_t sum = plain;
    for (const Pages* pages : pages()) sum += pages->mapped();
    return sum;
  }

  size_t live() const {
    size_t sum = plain;
    for (const auto& heap : heaps) sum += heap ? heap->live() : 0;
    for (const auto& [_, range] : ranges) sum += range->pages.mapped();
    return sum;
  }

  HostCopy::Places places() const {
    HostCopy::Places all;
    for (const auto& heap : heaps) {
      if (!heap) continue;
      for (const auto& place : heap->used()) all.push_back(place);
    }
    for (const auto& [base, range] : ranges) {
      for (const size_t i : range->pages.mapped_chunks()) {
        all.emplace_back(base + i * range->pages.chunk(), range->pages.chunk());
      }
    }
    std::sort(all.begin(), all.end());
    return all;
  }
};

}  // namespace vcc
