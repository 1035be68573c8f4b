#include "host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "abi/error.h"

namespace vcc {

namespace {

constexpr size_t kHuge = size_t{2} << 20;
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14

Error shortage(size_t size, const std::string& why) {
  return Error(Code::kDevice, "cannot keep the contents of device memory",
               "there is no host memory for " + std::to_string(size) + " bytes: " + why,
               "free host memory, or sleep at level 2, which keeps less");
}

// The number after `name` in a file of lines "name number"; SIZE_MAX when there is none.
size_t number_in(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    size_t value = 0;
    if (word == name && file >> value) return value;
  }
  return SIZE_MAX;
}

size_t whole(const char* path) {
  std::ifstream file(path);
  size_t value = 0;
  return file >> value ? value : SIZE_MAX;  // "max" is no number
}

// What the control group may still take. Cached files can be dropped, so what counts is what
// cannot: anonymous and shared memory. Where the kernel does not say, the group is left out.
size_t group_left() {
  const size_t limit = whole("/sys/fs/cgroup/memory.max");
  const size_t anonymous = number_in("/sys/fs/cgroup/memory.stat", "anon");
  const size_t shared = number_in("/sys/fs/cgroup/memory.stat", "shmem");
  if (limit == SIZE_MAX || anonymous == SIZE_MAX || shared == SIZE_MAX) return SIZE_MAX;
  return limit - std::min(limit, anonymous + shared);
}

}  // namespace

size_t host_memory_left() {
  const size_t kib = number_in("/proc/meminfo", "MemAvailable:");
  return std::min(kib == SIZE_MAX ? SIZE_MAX : kib << 10, group_left());
}

HostMemory::HostMemory(size_t size) : size_(size) {
  if (size == 0) return;
  if (const size_t left = host_memory_left(); left < size) {
    throw shortage(size, std::to_string(left) + " are available");
  }
  mapped_bytes_ = size + kHuge;
  mapped_ =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped_ == MAP_FAILED) throw shortage(size, std::strerror(errno));
  const auto start = reinterpret_cast<uintptr_t>(mapped_);
  data_ = static_cast<char*>(mapped_) + ((start + kHuge - 1) / kHuge * kHuge - start);
  madvise(data_, size, MADV_HUGEPAGE);  // a system without them is slower, not wrong
}

HostMemory::~HostMemory() {
  if (data_ != nullptr) munmap(mapped_, mapped_bytes_);
}

void HostMemory::populate(size_t offset, size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = offset / page * page;
  const size_t last = (offset + bytes + page - 1) / page * page;
  while (madvise(data_ + first, last - first, kPopulateWrite) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno == EINVAL || errno == ENOSYS) return;  // older: pages come when they are written
    throw shortage(size_, std::strerror(errno));
  }
}

}  // namespace vcc
