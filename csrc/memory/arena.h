// The arena: device memory whose addresses outlive its pages. Allocations carry a tag; the memory
// of a tag can be taken away (sleep, discard) and given back (wake) while graphs keep its
// addresses.
//
// All functions take the arena's lock; none waits for the device except sleep, wake, discard and
// trim. With `enabled = false` every allocation is a plain cuMemAlloc and nothing can sleep.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "driver/device.h"
#include "memory/host_copy.h"
#include "memory/ring.h"

namespace vcc {

class Heap;
struct Taken;

using Tags = std::vector<std::string>;

// What a user of a tag needs before it may launch.
enum class Need { kMemory, kContents };

struct ArenaCounters {
  uint64_t allocations = 0, frees = 0;   // calls
  uint64_t live = 0, peak_live = 0;      // bytes of allocations
  uint64_t mapped = 0, peak_mapped = 0;  // bytes of device memory held
  uint64_t reserved = 0;                 // bytes of addresses
  uint64_t host = 0;                     // bytes of host memory that hold sleeping contents
  uint64_t sleeps = 0, wakes = 0, discards = 0, trims = 0;
};

// Where the last sleep or wake spent its time, in seconds.
struct SleepTimes {
  size_t bytes = 0;        // of contents
  double memory = 0;       // mapping or unmapping
  double copy = 0;         // what copying took beyond that
  TransferTimes transfer;  // of all threads together
};

class Arena {
 public:
  explicit Arena(std::shared_ptr<Device> device, bool enabled = true);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Device& device() const { return *device_; }
  bool enabled() const { return enabled_; }

  // Addresses are multiples of 512. Out of memory: cached pages are given back and it is tried once
  // more. Throws kDevice (out of memory, or the tag sleeps).
  CUdeviceptr allocate(size_t size, const std::string& tag);
  void free(CUdeviceptr address);
  bool owns(CUdeviceptr address);

  // Addresses for `size` bytes, with no memory yet; map_range gives parts of them memory, in chunks
  // of `chunk` bytes (0: the arena chooses). Offsets and sizes are multiples of the chunk, or reach
  // the range's end. Mapping is transactional; what is mapped already stays. Without virtual memory
  // (off switch) all of it is allocated at once and mapping does nothing.
  CUdeviceptr reserve_range(size_t size, size_t chunk, const std::string& tag);
  void map_range(CUdeviceptr range, size_t offset, size_t size);
  void unmap_range(CUdeviceptr range, size_t offset, size_t size);
  size_t range_chunk(CUdeviceptr range);
  size_t range_mapped(CUdeviceptr range);  // bytes
  void free_range(CUdeviceptr range);

  // Device memory that no process holds now, in bytes, with this arena's cached pages added.
  size_t available();

  // Take away the memory of tags (none named: all). Level 1 keeps contents in host memory,
  // except of kv_cache, workspace and scratch; level 2 keeps only buffers and io. Waits for the
  // device. On failure everything is as before. Tags that sleep already are left alone.
  void sleep(int level, const Tags& tags);

  // Give memory and kept contents back to the named tags (none: all) and to every tag that cannot
  // be left asleep (all but weights, kv_cache and a user's own). On failure everything sleeps as
  // before and it can be tried again.
  void wake(const Tags& tags);

  // How contents are moved: threads (0: one a processor, at most 16), each with two pinned slots of
  // `slot_bytes` (0: the arena chooses). Not while contents sleep. The ring is pinned at the first
  // sleep and kept for the life of the arena.
  void set_ring(uint32_t threads, size_t slot_bytes);

  // Take the memory of these tags away and forget their contents.
  void discard(const Tags& tags);

  // Give back pages in which nothing lives; returns their bytes. Waits for the device.
  size_t trim();

  // Changes whenever a sleep, wake, discard or fill may change what `require` says.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

  // Throws kGraph when the tag is asleep, or (kContents) its contents were dropped and it has not
  // been filled since. A tag without allocations is fine. `task` begins the message: "cannot
  // replay".
  void require(const std::string& tag, Need need, const char* task);

  // The caller has written a tag's contents again.
  void mark_filled(const std::string& tag);

  bool asleep(const std::string& tag);
  ArenaCounters counters();
  std::string stats();  // JSON: counters, and live, mapped, asleep, filled of each tag
  std::string times();  // JSON: SleepTimes of the last sleep and wake, and the ring

 private:
  struct Range;
  struct Tag;
  using Contents = std::vector<std::unique_ptr<HostCopy>>;

  static constexpr size_t kRingSlot = size_t{2} << 20;

  Tag& tag(const std::string& name);
  std::vector<Tag*> chosen(const Tags& names);
  Heap& heap_for(Tag& tag, size_t size);
  CUdeviceptr allocate_plain(size_t size, const std::string& name);
  std::pair<Tag*, Range*> range_at(CUdeviceptr base);
  std::pair<size_t, size_t> chunks_of(const Range& range, size_t offset, size_t size) const;
  void put_to_sleep(const std::vector<Tag*>& tags, const std::vector<bool>& kept);
  void take_memory(Tag& tag, std::unique_ptr<HostCopy> contents);
  std::unique_ptr<HostCopy> copy_of(const Tag& tag, SleepTimes& times);
  void restore(Tag& tag, SleepTimes& times);
  void map_again(const Taken& taken, HostCopy::Return* back);
  void let_go(Contents contents);
  void fall_asleep_again(const std::vector<Tag*>& tags) noexcept;
  void synchronise();
  size_t trim_locked();
  void count_memory();
  void require_awake(const Tag& tag, const char* task) const;
  void require_enabled(const char* task) const;

  std::shared_ptr<Device> device_;
  bool enabled_;
  size_t granularity_ = 0;
  std::mutex lock_;
  std::map<std::string, std::unique_ptr<Tag>> tags_;
  std::unordered_map<CUdeviceptr, std::pair<Tag*, size_t>> plain_;  // off switch: from cuMemAlloc
  std::unique_ptr<Ring> ring_;
  uint32_t ring_threads_ = 0;
  size_t ring_slot_ = kRingSlot;
  std::thread letting_go_;
  SleepTimes slept_, woke_;
  std::atomic<uint64_t> version_{1};
  ArenaCounters counters_;
};

// The arena behind a handle of the C ABI, kept alive by the result. Throws kUsage.
std::shared_ptr<Arena> arena_of(uint64_t handle);

}  // namespace vcc
