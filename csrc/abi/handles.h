// Handles of the C ABI: numbers that never repeat, so a closed or invented one is refused instead
// of followed. An object in use by another thread lives until that call ends.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "abi/error.h"

namespace vcc {

template <class T>
class Handles {
 public:
  // `kind` names the objects in errors, such as "arena".
  explicit Handles(const char* kind) : kind_(kind) {}

  uint64_t add(std::shared_ptr<T> object) {
    const std::lock_guard lock(lock_);
    live_.emplace(++last_, std::move(object));
    return last_;
  }

  std::shared_ptr<T> get(uint64_t handle) {
    const std::lock_guard lock(lock_);
    const auto found = live_.find(handle);
    if (found == live_.end()) throw missing(handle);
    return found->second;
  }

  // Takes it out: the caller's copy is the last one unless another thread is using it.
  std::shared_ptr<T> remove(uint64_t handle) {
    const std::lock_guard lock(lock_);
    const auto found = live_.find(handle);
    if (found == live_.end()) throw missing(handle);
    std::shared_ptr<T> object = std::move(found->second);
    live_.erase(found);
    return object;
  }

 private:
  Error missing(uint64_t handle) const {
    return Error(Code::kUsage, std::string("no such ") + kind_,
                 "handle " + std::to_string(handle) + " is closed or was never open");
  }

  const char* kind_;
  std::mutex lock_;
  std::unordered_map<uint64_t, std::shared_ptr<T>> live_;
  uint64_t last_ = 0;
};

}  // namespace vcc
