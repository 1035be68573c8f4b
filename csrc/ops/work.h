// Work items on torch's threads, and memory that a thread keeps between calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <vector>

#include "rows.h"

namespace vcc {

// Multiplications below which waking other threads costs more than it gives.
constexpr int64_t kSerialWork = 1 << 18;

// Scratch memory that a thread keeps between calls; grows, is never shared.
class Scratch {
 public:
  float* floats(int64_t count) {
    if (count > capacity_) {
      memory_.reset(new (std::align_val_t(64)) float[count]);
      capacity_ = count;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  std::unique_ptr<float[], Free> memory_;
  int64_t capacity_ = 0;
};

// Threads take the next item when they are free: items differ in length. The last item goes first.
template <class Item, class F>
void for_items(const std::vector<Item>& items, bool serial, const F& body) {
  const int64_t count = static_cast<int64_t>(items.size());
  std::atomic<int64_t> next{count};
  const auto drain = [&](int64_t, int64_t) {
    for (int64_t i = --next; i >= 0; i = --next) body(items[i]);
  };
  const int64_t threads = std::min<int64_t>(count, torch::stable::get_num_threads());
  if (serial || threads <= 1) {
    drain(0, 1);
  } else {
    torch::stable::parallel_for(0, threads, 1, drain);
  }
}

}  // namespace vcc
