// Sleep, wake and discard.
#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "arena.h"
#include "memory/arena_tag.h"
#include "memory/tags.h"

namespace vcc {

namespace {

constexpr size_t kBatch = 8;  // chunks mapped before copies into them are begun

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool named(const Tags& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::vector<Arena::Tag*> Arena::chosen(const Tags& names) {
  std::vector<Tag*> all;
  for (const auto& [name, tag] : tags_) {
    if (named(names, name)) all.push_back(tag.get());
  }
  return all;
}

void Arena::sleep(int level, const Tags& names) {
  const std::lock_guard lock(lock_);
  require_enabled("put memory to sleep");
  if (level != 1 && level != 2) {
    throw Error(Code::kUsage, "cannot sleep at level " + std::to_string(level), "",
                "use 1 (contents are kept) or 2 (contents are dropped)");
  }
  const std::vector<Tag*> tags = chosen(names);
  std::vector<bool> kept;
  for (const Tag* one : tags) kept.push_back(policy_of(one->name).kept_at(level));
  put_to_sleep(tags, kept);
  ++counters_.sleeps;
}

void Arena::discard(const Tags& names) {
  const std::lock_guard lock(lock_);
  require_enabled("discard memory");
  const std::vector<Tag*> tags = chosen(names);
  put_to_sleep(tags, std::vector<bool>(tags.size(), false));
  Contents gone;
  for (Tag* one : tags) {  // also what slept with its contents until now
    gone.push_back(std::move(one->kept));
    one->filled = false;
  }
  let_go(std::move(gone));
  version_.fetch_add(1);
  ++counters_.discards;
  count_memory();
}

// Contents are saved first, for all tags; then memory is given back, that of kept tags first. When
// the driver refuses to take a chunk back, what was taken is mapped and filled again; contents that
// were to be dropped may be lost by then, and their tag counts as not filled.
void Arena::put_to_sleep(const std::vector<Tag*>& tags, const std::vector<bool>& kept) {
  device_->use();
  synchronise();
  if (letting_go_.joinable()) letting_go_.join();  // its host memory may be needed now
  const auto start = Clock::now();
  SleepTimes times;
  std::vector<Tag*> going;
  Contents copies;
  for (const bool keep : {true, false}) {
    for (size_t i = 0; i < tags.size(); ++i) {
      if (tags[i]->asleep || kept[i] != keep) continue;
      for (auto& heap : tags[i]->heaps) {
        if (heap) heap->trim();
      }
      going.push_back(tags[i]);
      copies.push_back(keep ? copy_of(*tags[i], times) : nullptr);
    }
  }
  times.copy = since(start);
  version_.fetch_add(1);
  size_t gone = 0;
  try {
    for (; gone < going.size(); ++gone) take_memory(*going[gone], std::move(copies[gone]));
  } catch (...) {
    for (size_t i = 0; i <= gone; ++i) {
      try {
        restore(*going[i], times);
        going[i]->awake();
      } catch (const Error&) {  // it sleeps, with what was taken and its contents kept
      }
    }
    count_memory();
    throw;
  }
  times.memory = since(start) - times.copy;
  slept_ = times;
  count_memory();
}

std::unique_ptr<HostCopy> Arena::copy_of(const Tag& one, SleepTimes& times) {
  if (!ring_) ring_ = std::make_unique<Ring>(device_, ring_threads_, ring_slot_);
  auto made = std::make_unique<HostCopy>(*ring_, one.places(), times.transfer);
  times.bytes += made->bytes();
  return made;
}

void Arena::take_memory(Tag& one, std::unique_ptr<HostCopy> contents) {
  one.kept = std::move(contents);
  one.asleep = true;
  for (Pages* pages : one.pages()) {
    one.taken.push_back({pages, {}});
    for (const size_t chunk : pages->mapped_chunks()) {
      pages->unmap(chunk);
      one.taken.back().chunks.push_back(chunk);
      if (!one.kept) one.filled = false;
    }
  }
}

// Map what was taken and copy the contents back, both at once; on failure the tag sleeps as before.
void Arena::restore(Tag& one, SleepTimes& times) {
  if (!one.asleep) return;
  try {
    std::unique_ptr<HostCopy::Return> back;
    if (one.kept) back = std::make_unique<HostCopy::Return>(*one.kept, *ring_);
    const auto start = Clock::now();
    for (const Taken& taken : one.taken) map_again(taken, back.get());
    times.memory += since(start);
    if (!one.kept) return;
    const auto mapped = Clock::now();
    const TransferTimes moved = back->finish();
    times.copy += since(mapped);
    times.transfer.host += moved.host;
    times.transfer.link += moved.link;
    times.bytes += one.kept->bytes();
  } catch (...) {
    fall_asleep_again({&one});
    throw;
  }
}

void Arena::map_again(const Taken& taken, HostCopy::Return* back) {
  for (size_t at = 0; at < taken.chunks.size(); at += kBatch) {
    const size_t end = std::min(at + kBatch, taken.chunks.size());
    taken.pages->map_these({taken.chunks.begin() + static_cast<ptrdiff_t>(at),
                            taken.chunks.begin() + static_cast<ptrdiff_t>(end)});
    if (back == nullptr) continue;
    // Chunks ascend: all contents below the end of the last one lie in mapped memory.
    back->open_below(taken.pages->base() + (taken.chunks[end - 1] + 1) * taken.pages->chunk());
  }
}

void Arena::fall_asleep_again(const std::vector<Tag*>& tags) noexcept {
  for (Tag* one : tags) {
    one->asleep = true;
    for (const Taken& taken : one->taken) taken.pages->unmap_quietly(taken.chunks);
  }
}

void Arena::wake(const Tags& names) {
  const std::lock_guard lock(lock_);
  require_enabled("wake memory");
  device_->use();
  std::vector<Tag*> woken;
  SleepTimes times;
  trim_locked();
  try {
    for (const auto& [name, one] : tags_) {
      // A tag that is not deferrable wakes with any other: what is named cannot be used without it.
      if (!one->asleep || (!named(names, name) && policy_of(name).deferrable)) continue;
      restore(*one, times);
      woken.push_back(one.get());
    }
  } catch (Error& error) {
    fall_asleep_again(woken);
    error.hint = "nothing was woken and contents are kept: free device memory and wake again";
    count_memory();
    throw;
  }
  Contents back;
  for (Tag* one : woken) {
    back.push_back(std::move(one->kept));
    one->awake();
  }
  woke_ = times;
  version_.fetch_add(1);
  ++counters_.wakes;
  count_memory();
  let_go(std::move(back));
}

// Gigabytes of pages take a while to give back; nobody needs to wait for it.
void Arena::let_go(Contents contents) {
  std::erase(contents, nullptr);
  if (contents.empty()) return;
  if (letting_go_.joinable()) letting_go_.join();
  try {
    letting_go_ = std::thread([gone = std::move(contents)]() mutable { gone.clear(); });
  } catch (const std::system_error&) {  // no thread: they went with the closure
  }
}

void Arena::set_ring(uint32_t threads, size_t slot_bytes) {
  const std::lock_guard lock(lock_);
  if (std::any_of(tags_.begin(), tags_.end(), [](const auto& one) { return !!one.second->kept; })) {
    throw Error(Code::kUsage, "cannot change the ring", "contents sleep that it will bring back",
                "wake them first");
  }
  device_->use();
  ring_threads_ = threads;
  ring_slot_ = slot_bytes == 0 ? kRingSlot : slot_bytes;
  ring_.reset();
}

void Arena::require(const std::string& name, Need need, const char* task) {
  const std::lock_guard lock(lock_);
  const auto found = tags_.find(name);
  if (found == tags_.end()) return;
  const Tag& one = *found->second;
  if (one.asleep) {
    throw Error(Code::kGraph, task, "the memory of \"" + name + "\" sleeps or was discarded",
                "wake it first");
  }
  if (need == Need::kContents && !one.filled) {
    throw Error(Code::kGraph, task, "the contents of \"" + name + "\" were dropped",
                "load them again first");
  }
}

void Arena::mark_filled(const std::string& name) {
  const std::lock_guard lock(lock_);
  const auto found = tags_.find(name);
  if (found == tags_.end() || found->second->asleep) return;
  found->second->filled = true;
  version_.fetch_add(1);
}

bool Arena::asleep(const std::string& name) {
  const std::lock_guard lock(lock_);
  const auto found = tags_.find(name);
  return found != tags_.end() && found->second->asleep;
}

}  // namespace vcc
