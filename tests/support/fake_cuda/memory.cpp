// Memory of the double: device addresses are host addresses of one mapped file, so copies act on
// real bytes. Physical memory that is released loses its contents.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <iterator>

#include "fake.h"

namespace fake {

namespace {

constexpr size_t kChunk = 2 << 20;

struct Physical {
  size_t offset, size;
  int maps = 0;
  bool released = false;
};

struct Mapping {
  size_t size;
  uint64_t handle;
  bool access = false;
};

struct Memory {
  int file = -1;
  size_t used = 0;
  uint64_t next_handle = 1;
  std::map<uint64_t, Physical> physical;
  std::map<size_t, size_t> holes;          // free parts of the file: offset to size
  std::map<CUdeviceptr, size_t> reserved;  // cuMemAddressReserve
  std::map<CUdeviceptr, Mapping> mapped;   // by start
  std::map<CUdeviceptr, uint64_t> plain;   // cuMemAlloc
  std::map<CUdeviceptr, size_t> host;      // cuMemHostAlloc, cuMemHostRegister
  std::set<CUdeviceptr> registered;
};

Memory& memory() {
  static auto* made = new Memory();
  return *made;
}

size_t total() { return static_cast<size_t>(number("VCC_FAKE_MEMORY", 1LL << 30)); }

size_t rounded(size_t size) { return (size + kChunk - 1) / kChunk * kChunk; }

int file() {
  if (memory().file < 0) {
    memory().file = memfd_create("fake device", MFD_CLOEXEC);
    // Twice the size: free parts of the file need not be contiguous, as on a device.
    if (ftruncate(memory().file, static_cast<off_t>(2 * total())) != 0) return -1;
    memory().holes[0] = 2 * total();
  }
  return memory().file;
}

CUresult create(size_t size, uint64_t* handle) {
  if (size == 0 || size % kChunk != 0) return CUDA_ERROR_INVALID_VALUE;
  if (file() < 0 || memory().used + size > total()) return CUDA_ERROR_OUT_OF_MEMORY;
  for (auto& [offset, length] : memory().holes) {
    if (length < size) continue;
    const size_t at = offset, rest = length - size;
    memory().holes.erase(at);
    if (rest > 0) memory().holes[at + size] = rest;
    memory().used += size;
    *handle = memory().next_handle++;
    memory().physical[*handle] = {at, size};
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void reclaim(uint64_t handle) {
  const Physical freed = memory().physical[handle];
  if (!freed.released || freed.maps > 0) return;
  fallocate(memory().file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(freed.offset), static_cast<off_t>(freed.size));
  memory().used -= freed.size;
  memory().physical.erase(handle);
  auto [at, _] = memory().holes.emplace(freed.offset, freed.size);
  if (const auto next = std::next(at);
      next != memory().holes.end() && at->first + at->second == next->first) {
    at->second += next->second;
    memory().holes.erase(next);
  }
  if (at != memory().holes.begin()) {
    const auto before = std::prev(at);
    if (before->first + before->second == at->first) {
      before->second += at->second;
      memory().holes.erase(at);
    }
  }
}

void* reserve(size_t size, void* wanted) {
  void* at =
      mmap(wanted, size + kChunk, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(at);
  const uintptr_t aligned = rounded(start);
  if (aligned > start) munmap(at, aligned - start);
  if (const size_t tail = start + kChunk - aligned; tail > 0) {
    munmap(reinterpret_cast<void*>(aligned + size), tail);
  }
  return reinterpret_cast<void*>(aligned);
}

// The reservation that holds all of [address, address + size).
bool inside_reserved(CUdeviceptr address, size_t size) {
  auto at = memory().reserved.upper_bound(address);
  if (at == memory().reserved.begin()) return false;
  --at;
  return address + size <= at->first + at->second;
}

bool overlaps_mapping(CUdeviceptr address, size_t size) {
  auto at = memory().mapped.lower_bound(address + size);
  if (at == memory().mapped.begin()) return false;
  --at;
  return at->first + at->second.size > address;
}

void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

CUresult map_at(CUdeviceptr address, size_t size, uint64_t handle, int protection) {
  Physical& physical = memory().physical[handle];
  void* at = mmap(host(address), size, protection, MAP_SHARED | MAP_FIXED, memory().file,
                  static_cast<off_t>(physical.offset));
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  ++physical.maps;
  memory().mapped[address] = {size, handle, protection != PROT_NONE};
  return CUDA_SUCCESS;
}

void unmap_at(CUdeviceptr address) {
  const Mapping gone = memory().mapped[address];
  mmap(host(address), gone.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
  memory().mapped.erase(address);
  --memory().physical[gone.handle].maps;
  reclaim(gone.handle);
}

// Applies `each` to the mappings that cover the range exactly; false when they do not.
template <class Each>
bool over(CUdeviceptr address, size_t size, Each each) {
  std::vector<CUdeviceptr> starts;
  CUdeviceptr at = address;
  while (at < address + size) {
    const auto found = memory().mapped.find(at);
    if (found == memory().mapped.end() || memory().plain.count(at) != 0) return false;
    starts.push_back(at);
    at += found->second.size;
  }
  if (at != address + size) return false;
  for (const CUdeviceptr start : starts) each(start);
  return true;
}

}  // namespace

bool accessible(CUdeviceptr address, size_t size) {
  CUdeviceptr at = address;
  while (at < address + size) {
    auto found = memory().mapped.upper_bound(at);
    if (found == memory().mapped.begin()) return false;
    --found;
    if (!found->second.access || at >= found->first + found->second.size) return false;
    at = found->first + found->second.size;
  }
  return true;
}

void reset_memory() {
  while (!memory().mapped.empty()) unmap_at(memory().mapped.begin()->first);
  for (const auto& [start, size] : memory().reserved) munmap(host(start), size);
  for (const auto& [start, size] : memory().host) {
    if (memory().registered.count(start) == 0) munmap(host(start), size);
  }
  if (memory().file >= 0) close(memory().file);
  memory() = {};
}

}  // namespace fake

using namespace fake;

#define ENTER(name)                    \
  const std::lock_guard guard(lock()); \
  if (const CUresult refused = enter(name)) return refused

FAKE_API CUresult cuMemGetInfo_v2(size_t* free, size_t* all) {
  ENTER("cuMemGetInfo");
  *free = total() - memory().used;
  *all = total();
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t size) {
  ENTER("cuMemAlloc");
  uint64_t handle = 0;
  if (const CUresult failed = create(rounded(size), &handle)) return failed;
  void* at = reserve(rounded(size), nullptr);
  *address = reinterpret_cast<CUdeviceptr>(at);
  memory().plain[*address] = handle;
  return map_at(*address, rounded(size), handle, PROT_READ | PROT_WRITE);
}

FAKE_API CUresult cuMemFree_v2(CUdeviceptr address) {
  ENTER("cuMemFree");
  const auto found = memory().plain.find(address);
  if (found == memory().plain.end()) return CUDA_ERROR_INVALID_VALUE;
  const size_t size = memory().mapped[address].size;
  memory().physical[found->second].released = true;
  memory().plain.erase(found);
  unmap_at(address);
  munmap(host(address), size);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemHostAlloc(void** address, size_t size, unsigned) {
  ENTER("cuMemHostAlloc");
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (size == 0 || at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  memory().host[reinterpret_cast<CUdeviceptr>(at)] = size;
  *address = at;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemFreeHost(void* address) {
  ENTER("cuMemFreeHost");
  const auto found = memory().host.find(reinterpret_cast<CUdeviceptr>(address));
  if (found == memory().host.end() || memory().registered.count(found->first) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(address, found->second);
  memory().host.erase(found);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemHostRegister_v2(void* address, size_t size, unsigned) {
  ENTER("cuMemHostRegister");
  const auto start = reinterpret_cast<CUdeviceptr>(address);
  if (!memory().host.emplace(start, size).second) return static_cast<CUresult>(712);
  memory().registered.insert(start);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemHostUnregister(void* address) {
  ENTER("cuMemHostUnregister");
  const auto start = reinterpret_cast<CUdeviceptr>(address);
  if (memory().registered.erase(start) == 0) return static_cast<CUresult>(713);
  memory().host.erase(start);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment,
                                      CUdeviceptr wanted, unsigned long long flags) {
  ENTER("cuMemAddressReserve");
  if (size == 0 || size % kChunk != 0 || flags != 0 || (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  void* at = reserve(size, host(wanted));
  if (at == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(at);
  memory().reserved[*address] = size;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  ENTER("cuMemAddressFree");
  const auto found = memory().reserved.find(address);
  if (found == memory().reserved.end() || found->second != size) return CUDA_ERROR_INVALID_VALUE;
  if (overlaps_mapping(address, size)) return CUDA_ERROR_INVALID_VALUE;
  munmap(host(address), size);
  memory().reserved.erase(found);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                              const CUmemAllocationProp* properties, unsigned long long flags) {
  ENTER("cuMemCreate");
  if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED || flags != 0 ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t made = 0;
  const CUresult result = create(size, &made);
  *handle = made;
  return result;
}

FAKE_API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER("cuMemRelease");
  const auto found = memory().physical.find(handle);
  if (found == memory().physical.end() || found->second.released) return CUDA_ERROR_INVALID_VALUE;
  found->second.released = true;
  reclaim(handle);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long flags) {
  ENTER("cuMemMap");
  const auto found = memory().physical.find(handle);
  if (found == memory().physical.end() || found->second.released || flags != 0 || offset != 0 ||
      size != found->second.size || address % kChunk != 0 || !inside_reserved(address, size) ||
      overlaps_mapping(address, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return map_at(address, size, handle, PROT_NONE);
}

FAKE_API CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  ENTER("cuMemUnmap");
  return over(address, size, unmap_at) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_API CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* access,
                                 size_t count) {
  ENTER("cuMemSetAccess");
  if (count != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool done = over(address, size, [](CUdeviceptr start) {
    Mapping& mapping = memory().mapped[start];
    mprotect(host(start), mapping.size, PROT_READ | PROT_WRITE);
    mapping.access = true;
  });
  return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_API CUresult cuMemGetAllocationGranularity(size_t* size, const CUmemAllocationProp*, int) {
  ENTER("cuMemGetAllocationGranularity");
  *size = kChunk;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute,
                                        CUdeviceptr address) {
  ENTER("cuPointerGetAttribute");
  auto found = memory().mapped.upper_bound(address);
  if (found == memory().mapped.begin()) return CUDA_ERROR_INVALID_VALUE;
  --found;
  if (address >= found->first + found->second.size) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = found->first;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(value) = found->second.size;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
