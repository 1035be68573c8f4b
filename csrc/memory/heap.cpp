#include "heap.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace vcc {

namespace {

constexpr size_t kClasses = 4 * 64;
constexpr int kTries = 32;          // blocks looked at in the class that may hold smaller ones
constexpr size_t kGap = 256 << 10;  // copied along rather than splitting a copy; less than a chunk

}  // namespace

Heap::Heap(std::shared_ptr<Device> device, size_t chunk, size_t region)
    : device_(std::move(device)), chunk_(chunk), region_(region), classes_(kClasses) {}

// Four classes for each power of two.
size_t Heap::class_of(size_t size) {
  const size_t power = static_cast<size_t>(std::bit_width(size)) - 1;
  return 4 * power + ((size >> (power - 2)) & 3);
}

CUdeviceptr Heap::allocate(size_t wanted) {
  const size_t size = std::max((wanted + kAlignment - 1) / kAlignment, size_t{1}) * kAlignment;
  auto block = find_free(size);
  if (block == blocks_.end()) block = add_region(size);
  take(block);
  const size_t rest = block->second.size - size;
  if (rest > 0) {
    block->second.size = size;
    const auto split =
        blocks_.emplace(block->first + size, Block{rest, true, block->second.region});
    keep(split.first);
  }
  const auto [first, last] = chunks_under(block);
  Region& region = *block->second.region;
  try {
    region.pages.map(first, last);
  } catch (...) {
    const auto next = std::next(block);
    if (rest > 0) {
      take(next);
      block = join(block, next);
    }
    keep(block);
    throw;
  }
  for (size_t i = first; i < last; ++i) ++region.users[i];
  block->second.free = false;
  live_ += size;
  return block->first;
}

size_t Heap::free(CUdeviceptr address) {
  auto block = blocks_.find(address);
  if (block == blocks_.end() || block->second.free) return 0;
  const size_t size = block->second.size;
  const auto [first, last] = chunks_under(block);
  for (size_t i = first; i < last; ++i) --block->second.region->users[i];
  block->second.free = true;
  live_ -= size;
  const auto next = std::next(block);
  if (next != blocks_.end() && next->second.free && next->second.region == block->second.region) {
    take(next);
    block = join(block, next);
  }
  if (block != blocks_.begin()) {
    const auto before = std::prev(block);
    if (before->second.free && before->second.region == block->second.region) {
      take(before);
      block = join(before, block);
    }
  }
  keep(block);
  return size;
}

bool Heap::contains(CUdeviceptr address) const {
  return std::any_of(regions_.begin(), regions_.end(),
                     [&](const auto& region) { return region->pages.contains(address); });
}

size_t Heap::trim() {
  size_t given = 0;
  for (const auto& region : regions_) {
    for (size_t i = 0; i < region->users.size(); ++i) {
      if (region->users[i] != 0 || !region->pages.has(i)) continue;
      region->pages.unmap(i);
      given += chunk_;
    }
  }
  return given;
}

size_t Heap::mapped() const {
  size_t sum = 0;
  for (const auto& region : regions_) sum += region->pages.mapped();
  return sum;
}

size_t Heap::reserved() const {
  size_t sum = 0;
  for (const auto& region : regions_) sum += region->pages.size();
  return sum;
}

std::vector<std::pair<CUdeviceptr, size_t>> Heap::used() const {
  std::vector<std::pair<CUdeviceptr, size_t>> places;
  const Region* last = nullptr;
  for (const auto& [address, block] : blocks_) {
    if (block.free) continue;
    if (last == block.region && !places.empty() &&
        address - (places.back().first + places.back().second) < kGap) {
      places.back().second = address + block.size - places.back().first;
    } else {
      places.emplace_back(address, block.size);
    }
    last = block.region;
  }
  return places;
}

std::vector<Pages*> Heap::pages() const {
  std::vector<Pages*> all;
  for (const auto& region : regions_) all.push_back(&region->pages);
  return all;
}

Heap::Blocks::iterator Heap::find_free(size_t size) {
  const size_t own = class_of(size);
  int tries = kTries;
  for (const CUdeviceptr address : classes_[own]) {
    const auto block = blocks_.find(address);
    if (block->second.size >= size) return block;
    if (--tries == 0) break;
  }
  for (size_t i = own + 1; i < kClasses; ++i) {
    if (!classes_[i].empty()) return blocks_.find(*classes_[i].begin());
  }
  return blocks_.end();
}

Heap::Blocks::iterator Heap::add_region(size_t size) {
  auto made = std::make_unique<Region>(device_, std::max(size, region_), chunk_);
  const auto block =
      blocks_.emplace(made->pages.base(), Block{made->pages.size(), true, made.get()}).first;
  regions_.push_back(std::move(made));
  keep(block);
  return block;
}

Heap::Blocks::iterator Heap::join(Blocks::iterator left, Blocks::iterator right) {
  left->second.size += right->second.size;
  blocks_.erase(right);
  return left;
}

std::pair<size_t, size_t> Heap::chunks_under(Blocks::const_iterator block) const {
  const size_t start = block->first - block->second.region->pages.base();
  return {start / chunk_, (start + block->second.size + chunk_ - 1) / chunk_};
}

void Heap::keep(Blocks::iterator block) {
  classes_[class_of(block->second.size)].insert(block->first);
}

void Heap::take(Blocks::iterator block) {
  classes_[class_of(block->second.size)].erase(block->first);
}

}  // namespace vcc
