// torch's pluggable allocator on arenas. torch knows a device's number and nothing of arenas, so
// each device has at most one bound arena; memory goes back to the arena that gave it, bound or
// not.
#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "abi.h"
#include "memory/arena.h"

namespace vcc {

namespace {

struct Bindings {
  std::mutex lock;
  std::vector<std::shared_ptr<Arena>> bound;  // at most one of each device
  // Arenas that were bound before: torch may still hold and free their memory.
  std::vector<std::shared_ptr<Arena>> former;
};

Bindings& bindings() {
  static auto* made = new Bindings();  // torch frees at exit, after static destruction
  return *made;
}

thread_local std::string thread_tag = "default";

void bind(const std::shared_ptr<Arena>& arena, bool on) {
  Bindings& table = bindings();
  const std::lock_guard lock(table.lock);
  const int device = arena->device().ordinal();
  std::erase_if(table.bound, [&](const std::shared_ptr<Arena>& other) {
    if (other->device().ordinal() != device || (!on && other != arena)) return false;
    if (other != arena) table.former.push_back(other);
    return true;
  });
  if (on) {
    table.bound.push_back(arena);
  } else if (arena->counters().live > 0) {
    table.former.push_back(arena);
  }
  std::erase_if(table.former, [&](const std::shared_ptr<Arena>& other) {
    return (on && other == arena) || other->counters().live == 0;
  });
}

std::shared_ptr<Arena> bound_to(int device) {
  Bindings& table = bindings();
  const std::lock_guard lock(table.lock);
  for (const auto& arena : table.bound) {
    if (arena->device().ordinal() == device) return arena;
  }
  throw Error(Code::kUsage, "no arena is bound for torch's device " + std::to_string(device));
}

std::shared_ptr<Arena> owner_of(CUdeviceptr address) {
  Bindings& table = bindings();
  const std::lock_guard lock(table.lock);
  for (const auto* arenas : {&table.bound, &table.former}) {
    for (const auto& arena : *arenas) {
      if (arena->owns(address)) return arena;
    }
  }
  return nullptr;
}

// An arena that is no longer bound is let go with the last of its memory.
void give_back(const std::shared_ptr<Arena>& owner, CUdeviceptr address) {
  owner->free(address);
  if (owner->counters().live > 0) return;
  Bindings& table = bindings();
  const std::lock_guard lock(table.lock);
  std::erase(table.former, owner);
}

}  // namespace

}  // namespace vcc

int32_t vcc_arena_bind_torch(uint64_t arena, uint32_t bound) {
  return vcc::guarded([&] { vcc::bind(vcc::arena_of(arena), bound != 0); });
}

int32_t vcc_arena_thread_tag(const char* tag, const char** before) {
  return vcc::guarded([&] {
    *before = vcc::keep_text(vcc::thread_tag);
    vcc::thread_tag = tag;
  });
}

void* vcc_torch_malloc(int64_t size, int device, void*) {
  uint64_t address = 0;
  vcc::guarded([&] {
    address = vcc::bound_to(device)->allocate(static_cast<size_t>(size), vcc::thread_tag);
  });
  return reinterpret_cast<void*>(address);
}

void vcc_torch_free(void* address, int64_t, int, void*) {
  vcc::guarded([&] {
    const auto place = reinterpret_cast<vcc::CUdeviceptr>(address);
    if (const auto owner = vcc::owner_of(place)) vcc::give_back(owner, place);
  });
}
