// A CUDA device of this process: its primary context, what it is, and whether it still works.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "driver/driver.h"

namespace vcc {

class Device {
 public:
  // Retain the primary context of the device with this number. Throws kDevice.
  Device(const std::string& driver_path, int ordinal);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Make the context current in this thread; every entry from outside begins with it. Throws
  // kDevice in a forked child, and after a sticky error (what happened is said).
  void use();

  // After a sticky error: nothing more is sent to the device. `reason` of the first is kept.
  void lose(const std::string& reason) { health_->lose(reason); }
  bool lost() const { return health_->lost.load(std::memory_order_acquire); }

  // Shared with the threads that used the device, which may outlive it.
  struct Health {
    std::atomic<bool> lost{false};
    std::mutex lock;
    std::string reason;
    void lose(const std::string& why);
  };

  // Name, numbers and limits as JSON; `free_memory` is of now. Keys: docs/graphs.md.
  std::string info();

  int attribute(CUdevice_attribute id) const;
  int ordinal() const { return ordinal_; }
  CUdevice id() const { return id_; }
  CUcontext context() const { return context_; }
  int capability() const { return capability_; }  // 90 for sm_90
  const std::string& name() const { return name_; }
  size_t memory() const { return memory_; }

 private:
  int ordinal_;
  pid_t process_;
  CUdevice id_ = 0;
  CUcontext context_ = nullptr;
  int capability_ = 0;
  std::string name_;
  size_t memory_ = 0;
  std::shared_ptr<Health> health_ = std::make_shared<Health>();
};

// Mark the device that this thread used last; fail_call does it.
void lose_device_of_this_thread(const std::string& reason);

// The device behind a handle of the C ABI, kept alive by the result. Throws kUsage: no such handle.
std::shared_ptr<Device> device_of(uint64_t handle);

}  // namespace vcc
