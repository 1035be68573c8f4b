#include "arena.h"

#include <algorithm>
#include <utility>

#include "memory/arena_tag.h"
#include "memory/relaxed.h"

namespace vcc {

namespace {

// Heaps of a tag by the size of their blocks. Small blocks do not pin the pages of large ones, and
// a chunk is at most an eighth of the smallest block that gets one of its own, so that holes
// between blocks waste little; large chunks make waking a large block few calls.
struct Kind {
  size_t below;   // block sizes
  size_t chunks;  // granules in a chunk
  double region;  // addresses reserved at a time, as a share of the device's memory
};

constexpr Kind kKinds[] = {
    {size_t{1} << 20, 1, 0.125},
    {size_t{32} << 20, 1, 0.5},
    {size_t{256} << 20, 2, 1.0},
    {SIZE_MAX, 16, 2.0},
};

static_assert(std::size(kKinds) == kHeaps);

}  // namespace

Arena::Arena(std::shared_ptr<Device> device, bool enabled)
    : device_(std::move(device)), enabled_(enabled) {
  device_->use();
  if (!enabled_) return;
  if (device_->attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
    throw Error(Code::kDevice, "cannot use the memory arena",
                device_->name() + " has no virtual memory management",
                "set VCC_USE_CUDA_MEMORY_POOL=0");
  }
  granularity_ = Pages::granularity(*device_);
}

Arena::~Arena() {
  const std::lock_guard lock(lock_);
  if (letting_go_.joinable()) letting_go_.detach();  // it needs nothing of the arena
  try {
    device_->use();
  } catch (const Error&) {  // lost, or forked: nothing may be called, and nothing needs freeing
    for (auto& [_, tag] : tags_) tag.release();
    ring_.release();
    return;
  }
  for (const auto& [address, _] : plain_) driver().cuMemFree(address);
}

Arena::Tag& Arena::tag(const std::string& name) {
  auto& found = tags_[name];
  if (!found) {
    found = std::make_unique<Tag>();
    found->name = name;
  }
  return *found;
}

Heap& Arena::heap_for(Tag& tag, size_t size) {
  size_t kind = 0;
  while (size >= kKinds[kind].below) ++kind;
  auto& heap = tag.heaps[kind];
  if (!heap) {
    const size_t chunk = kKinds[kind].chunks * granularity_;
    const auto region = static_cast<size_t>(kKinds[kind].region * device_->memory());
    heap = std::make_unique<Heap>(device_, chunk, std::max(region, chunk));
  }
  return *heap;
}

CUdeviceptr Arena::allocate(size_t size, const std::string& name) {
  const std::lock_guard lock(lock_);
  device_->use();
  const Relaxed relaxed;
  if (!enabled_) return allocate_plain(size, name);
  Tag& owner = tag(name);
  require_awake(owner, "allocate memory");
  Heap& heap = heap_for(owner, size);
  CUdeviceptr address = 0;
  try {
    address = heap.allocate(size);
  } catch (const CudaError& error) {
    if (error.result != CUDA_ERROR_OUT_OF_MEMORY || trim_locked() == 0) throw;
    address = heap.allocate(size);
  }
  ++counters_.allocations;
  count_memory();
  return address;
}

CUdeviceptr Arena::allocate_plain(size_t size, const std::string& name) {
  CUdeviceptr address = 0;
  const size_t rounded = std::max(round_up(size, Heap::kAlignment), Heap::kAlignment);
  VCC_CU(cuMemAlloc(&address, rounded));
  Tag& owner = tag(name);
  plain_[address] = {&owner, rounded};
  owner.plain += rounded;
  ++counters_.allocations;
  count_memory();
  return address;
}

void Arena::free(CUdeviceptr address) {
  const std::lock_guard lock(lock_);
  if (const auto found = plain_.find(address); found != plain_.end()) {
    device_->use();
    VCC_CU(cuMemFree(address));
    found->second.first->plain -= found->second.second;
    plain_.erase(found);
    ++counters_.frees;
    return count_memory();
  }
  for (auto& [_, owner] : tags_) {
    for (auto& heap : owner->heaps) {
      if (!heap || !heap->contains(address)) continue;
      if (heap->free(address) == 0) break;
      ++counters_.frees;
      return count_memory();
    }
  }
  throw Error(Code::kUsage, "cannot free memory",
              "address " + std::to_string(address) + " is not one that the arena gave");
}

bool Arena::owns(CUdeviceptr address) {
  const std::lock_guard lock(lock_);
  if (plain_.count(address) != 0) return true;
  return std::any_of(tags_.begin(), tags_.end(), [&](const auto& entry) {
    const auto pages = entry.second->pages();
    return std::any_of(pages.begin(), pages.end(),
                       [&](const Pages* part) { return part->contains(address); });
  });
}

size_t Arena::available() {
  const std::lock_guard lock(lock_);
  device_->use();
  size_t free = 0, total = 0;
  VCC_CU(cuMemGetInfo(&free, &total));
  for (const auto& [_, owner] : tags_)
    free += owner->mapped() - std::min(owner->mapped(), owner->live());
  return free;
}

size_t Arena::trim() {
  const std::lock_guard lock(lock_);
  if (!enabled_) return 0;
  device_->use();
  const size_t given = trim_locked();
  ++counters_.trims;
  count_memory();
  return given;
}

// Freed blocks may still be read by kernels that were launched before.
size_t Arena::trim_locked() {
  synchronise();
  size_t given = 0;
  for (auto& [_, owner] : tags_) {
    if (owner->asleep) continue;
    for (auto& heap : owner->heaps) given += heap ? heap->trim() : 0;
  }
  return given;
}

void Arena::synchronise() { VCC_CU(cuCtxSynchronize()); }

void Arena::require_awake(const Tag& one, const char* task) const {
  if (!one.asleep) return;
  throw Error(Code::kDevice, std::string("cannot ") + task,
              "the memory of \"" + one.name + "\" sleeps", "wake it first");
}

void Arena::require_enabled(const char* task) const {
  if (enabled_) return;
  throw Error(Code::kUsage, std::string("cannot ") + task,
              "the memory arena is off (VCC_USE_CUDA_MEMORY_POOL=0)", "leave it on");
}

}  // namespace vcc
