// Nanoseconds of a scope, added to a sum.
#pragma once

#include <chrono>
#include <cstdint>

namespace vcc {

class Timer {
 public:
  explicit Timer(uint64_t& into) : into_(into), start_(std::chrono::steady_clock::now()) {}
  ~Timer() { into_ += static_cast<uint64_t>((std::chrono::steady_clock::now() - start_).count()); }

 private:
  uint64_t& into_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace vcc
