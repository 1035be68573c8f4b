// Ranges of addresses that get memory part by part.
#include <algorithm>
#include <utility>

#include "memory/arena.h"
#include "memory/arena_tag.h"
#include "memory/relaxed.h"

namespace vcc {

namespace {

constexpr size_t kRangeChunk = size_t{32} << 20;

}  // namespace

CUdeviceptr Arena::reserve_range(size_t size, size_t chunk, const std::string& name) {
  if (!enabled_) return allocate(size, name);
  const std::lock_guard lock(lock_);
  device_->use();
  const size_t step = round_up(chunk == 0 ? kRangeChunk : chunk, granularity_);
  Tag& owner = tag(name);
  require_awake(owner, "reserve addresses");
  auto made = std::make_unique<Range>(device_, std::max(size, size_t{1}), step);
  const CUdeviceptr base = made->pages.base();
  owner.ranges[base] = std::move(made);
  count_memory();
  return base;
}

std::pair<Arena::Tag*, Arena::Range*> Arena::range_at(CUdeviceptr base) {
  for (auto& [_, owner] : tags_) {
    const auto found = owner->ranges.find(base);
    if (found != owner->ranges.end()) return {owner.get(), found->second.get()};
  }
  throw Error(Code::kUsage, "no such range of addresses",
              "address " + std::to_string(base) + " was not given by reserve_range");
}

std::pair<size_t, size_t> Arena::chunks_of(const Range& range, size_t offset, size_t size) const {
  const size_t chunk = range.pages.chunk();
  const bool inside = offset <= range.size && size <= range.size - offset;
  const bool whole = offset % chunk == 0 && (size % chunk == 0 || offset + size == range.size);
  if (!inside || !whole) {
    throw Error(Code::kUsage, "cannot map part of a range",
                "offset " + std::to_string(offset) + " and size " + std::to_string(size) +
                    " are not multiples of " + std::to_string(chunk) + " inside " +
                    std::to_string(range.size));
  }
  return {offset / chunk, round_up(offset + size, chunk) / chunk};
}

void Arena::map_range(CUdeviceptr base, size_t offset, size_t size) {
  const std::lock_guard lock(lock_);
  if (plain_.count(base) != 0) return;
  device_->use();
  const Relaxed relaxed;
  const auto [owner, range] = range_at(base);
  require_awake(*owner, "map memory");
  const auto [first, last] = chunks_of(*range, offset, size);
  try {
    range->pages.map(first, last);
  } catch (const CudaError& error) {
    if (error.result != CUDA_ERROR_OUT_OF_MEMORY || trim_locked() == 0) throw;
    range->pages.map(first, last);
  }
  count_memory();
}

void Arena::unmap_range(CUdeviceptr base, size_t offset, size_t size) {
  const std::lock_guard lock(lock_);
  if (plain_.count(base) != 0) return;
  device_->use();
  const auto [owner, range] = range_at(base);
  require_awake(*owner, "unmap memory");
  const auto [first, last] = chunks_of(*range, offset, size);
  synchronise();
  for (size_t i = first; i < last; ++i) {
    if (range->pages.has(i)) range->pages.unmap(i);
  }
  count_memory();
}

size_t Arena::range_chunk(CUdeviceptr base) {
  const std::lock_guard lock(lock_);
  return plain_.count(base) != 0 ? plain_[base].second : range_at(base).second->pages.chunk();
}

size_t Arena::range_mapped(CUdeviceptr base) {
  const std::lock_guard lock(lock_);
  return plain_.count(base) != 0 ? plain_[base].second : range_at(base).second->pages.mapped();
}

void Arena::free_range(CUdeviceptr base) {
  if (!enabled_) return free(base);
  const std::lock_guard lock(lock_);
  device_->use();
  const auto [owner, range] = range_at(base);
  synchronise();
  std::erase_if(owner->taken,
                [&, part = &range->pages](const Taken& taken) { return taken.pages == part; });
  if (owner->kept) owner->kept->forget(base, range->pages.size());
  owner->ranges.erase(base);
  count_memory();
}

}  // namespace vcc
