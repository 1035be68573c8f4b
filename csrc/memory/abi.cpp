#include "abi.h"

#include "abi/handles.h"
#include "memory/arena.h"

namespace vcc {

namespace {

Handles<Arena>& arenas() {
  static auto* table = new Handles<Arena>("arena");  // never freed: threads may outlive main
  return *table;
}

Tags split(const char* joined) {
  Tags tags;
  const std::string text = joined;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\x1f', at), text.size());
    tags.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return tags;
}

}  // namespace

std::shared_ptr<Arena> arena_of(uint64_t handle) { return arenas().get(handle); }

}  // namespace vcc

using vcc::arena_of;
using vcc::guarded;

int32_t vcc_arena_open(uint64_t device, uint32_t enabled, uint64_t* arena) {
  return guarded([&] {
    auto made = std::make_shared<vcc::Arena>(vcc::device_of(device), enabled != 0);
    *arena = vcc::arenas().add(std::move(made));
  });
}

int32_t vcc_arena_close(uint64_t arena) {
  return guarded([&] { vcc::arenas().remove(arena); });
}

int32_t vcc_arena_allocate(uint64_t arena, uint64_t size, const char* tag, uint64_t* address) {
  return guarded([&] { *address = arena_of(arena)->allocate(size, tag); });
}

int32_t vcc_arena_free(uint64_t arena, uint64_t address) {
  return guarded([&] { arena_of(arena)->free(address); });
}

int32_t vcc_arena_reserve_range(uint64_t arena, uint64_t size, uint64_t chunk, const char* tag,
                                uint64_t* address) {
  return guarded([&] { *address = arena_of(arena)->reserve_range(size, chunk, tag); });
}

int32_t vcc_arena_map_range(uint64_t arena, uint64_t range, uint64_t offset, uint64_t size) {
  return guarded([&] { arena_of(arena)->map_range(range, offset, size); });
}

int32_t vcc_arena_unmap_range(uint64_t arena, uint64_t range, uint64_t offset, uint64_t size) {
  return guarded([&] { arena_of(arena)->unmap_range(range, offset, size); });
}

int32_t vcc_arena_range(uint64_t arena, uint64_t range, uint64_t* chunk, uint64_t* mapped) {
  return guarded([&] {
    *chunk = arena_of(arena)->range_chunk(range);
    *mapped = arena_of(arena)->range_mapped(range);
  });
}

int32_t vcc_arena_free_range(uint64_t arena, uint64_t range) {
  return guarded([&] { arena_of(arena)->free_range(range); });
}

int32_t vcc_arena_available(uint64_t arena, uint64_t* bytes) {
  return guarded([&] { *bytes = arena_of(arena)->available(); });
}

int32_t vcc_arena_sleep(uint64_t arena, int32_t level, const char* tags) {
  return guarded([&] { arena_of(arena)->sleep(level, vcc::split(tags)); });
}

int32_t vcc_arena_wake(uint64_t arena, const char* tags) {
  return guarded([&] { arena_of(arena)->wake(vcc::split(tags)); });
}

int32_t vcc_arena_discard(uint64_t arena, const char* tags) {
  return guarded([&] { arena_of(arena)->discard(vcc::split(tags)); });
}

int32_t vcc_arena_trim(uint64_t arena, uint64_t* bytes) {
  return guarded([&] { *bytes = arena_of(arena)->trim(); });
}

int32_t vcc_arena_version(uint64_t arena, uint64_t* version) {
  return guarded([&] { *version = arena_of(arena)->version(); });
}

int32_t vcc_arena_require(uint64_t arena, const char* tag, uint32_t contents, const char* task) {
  return guarded([&] {
    const auto need = contents != 0 ? vcc::Need::kContents : vcc::Need::kMemory;
    arena_of(arena)->require(tag, need, task);
  });
}

int32_t vcc_arena_mark_filled(uint64_t arena, const char* tag) {
  return guarded([&] { arena_of(arena)->mark_filled(tag); });
}

int32_t vcc_arena_stats(uint64_t arena, const char** json) {
  return guarded([&] { *json = vcc::keep_text(arena_of(arena)->stats()); });
}

int32_t vcc_arena_ring(uint64_t arena, uint32_t threads, uint64_t slot_bytes) {
  return guarded([&] { arena_of(arena)->set_ring(threads, slot_bytes); });
}

int32_t vcc_arena_times(uint64_t arena, const char** json) {
  return guarded([&] { *json = vcc::keep_text(arena_of(arena)->times()); });
}
