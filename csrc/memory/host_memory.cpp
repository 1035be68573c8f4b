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

// Cached files can be dropped, so what counts is what cannot: anonymous and shared memory, and what
// the kernel and huge pages hold. MemAvailable is no help: guests whose memory grows as it is used
// say 0 there long before they have none.
size_t machine_left() {
  static const char* const kHeld[] = {
      "AnonPages:", "Shmem:", "SUnreclaim:", "PageTables:", "KernelStack:", "Hugetlb:"};
  const size_t total = number_in("/proc/meminfo", "MemTotal:");
  if (total == SIZE_MAX) return SIZE_MAX;
  size_t held = 0;
  for (const char* name : kHeld) {
    const size_t kib = number_in("/proc/meminfo", name);
    if (kib != SIZE_MAX) held += kib;
  }
  return (total - std::min(total, held)) << 10;
}

// What the control group may still take. Where the kernel does not say, the group is left out.
size_t group_left() {
  const size_t limit = whole("/sys/fs/cgroup/memory.max");
  const size_t anonymous = number_in("/sys/fs/cgroup/memory.stat", "anon");
  const size_t shared = number_in("/sys/fs/cgroup/memory.stat", "shmem");
  if (limit == SIZE_MAX || anonymous == SIZE_MAX || shared == SIZE_MAX) return SIZE_MAX;
  return limit - std::min(limit, anonymous + shared);
}

std::string of_group(size_t bytes) {
  return bytes == SIZE_MAX ? "any number" : std::to_string(bytes);
}

}  // namespace

size_t host_memory_left() { return std::min(machine_left(), group_left()); }

HostMemory::HostMemory(size_t size) : size_(size) {
  if (size == 0) return;
  if (host_memory_left() < size) {
    throw shortage(size, std::to_string(machine_left()) + " are left on this machine, " +
                             of_group(group_left()) + " to its control group");
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
