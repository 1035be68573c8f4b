#include "host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
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

// The number in a line that begins with `name`; SIZE_MAX when there is none. Not by streams: their
// numbers go through the locale, which libraries of the process have been seen to break.
size_t number_in(const char* path, const std::string& name) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "re"), &std::fclose);
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file.get()) != nullptr) {
    if (std::strncmp(line, name.c_str(), name.size()) != 0) continue;
    char* end = nullptr;
    const char* digits = line + name.size();
    const unsigned long long value = std::strtoull(digits, &end, 10);
    if (end != digits) return value;
  }
  return SIZE_MAX;
}

// Cached files can be dropped, so what counts is what cannot: anonymous and shared memory, and what
// the kernel and huge pages hold.
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
  const size_t limit = number_in("/sys/fs/cgroup/memory.max", "");  // "max" is no number
  const size_t anonymous = number_in("/sys/fs/cgroup/memory.stat", "anon ");
  const size_t shared = number_in("/sys/fs/cgroup/memory.stat", "shmem ");
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
