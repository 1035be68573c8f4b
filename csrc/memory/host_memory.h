// Ordinary host memory for gigabytes: in huge pages where the system has them, and taken page by
// page where a shortage is an error instead of the end of the process.
#pragma once

#include <cstddef>

namespace vcc {

class HostMemory {
 public:
  // Addresses for `size` bytes. Throws kDevice: the machine, or this process's share, has less.
  explicit HostMemory(size_t size);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }

  // Take the pages of this part; may be called by several threads. Throws kDevice: none are left.
  void populate(size_t offset, size_t bytes);

 private:
  size_t size_;
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  char* data_ = nullptr;
};

// Bytes that this process can still take without pushing anybody out: what the machine has
// available, or what is left to the process's control group if that is less.
size_t host_memory_left();

}  // namespace vcc
