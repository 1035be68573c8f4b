#include "recorder/pool.h"

#include <mutex>
#include <string>

#include "abi/error.h"
#include "driver/driver.h"

namespace {

using namespace vcc;

constexpr uint32_t kPools = 4;
constexpr uint64_t kPage = 2u << 20;  // granularity of device memory; also of what is handed out

struct Pool {
  std::mutex lock;
  int ordinal = 0;
  uint64_t base = 0, bytes = 0, used = 0;
  uint64_t mapped = 0;  // address up to which there is memory
};

Pool pools[kPools];

Pool& pool_at(uint32_t index) {
  VCC_EXPECT(index < kPools, "there are four pools");
  return pools[index];
}

uint64_t pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void map_up_to(Pool& pool, uint64_t end) {
  if (end <= pool.mapped) return;
  const uint64_t size = pages(end - pool.mapped);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, pool.ordinal};
  CUmemGenericAllocationHandle handle = 0;
  VCC_CU(cuMemCreate(&handle, size, &properties, 0));
  VCC_CU(cuMemMap(pool.mapped, size, 0, handle, 0));
  VCC_CU(cuMemRelease(handle));  // the mapping keeps it
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  VCC_CU(cuMemSetAccess(pool.mapped, size, &access, 1));
  pool.mapped += size;
}

uint64_t take(Pool& pool, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(pool.lock);
  const uint64_t size = pages(bytes == 0 ? 1 : bytes);
  if (size > pool.bytes - pool.used) {
    throw Error(Code::kDevice, "a pool of the recorder is full",
                std::to_string(bytes) + " bytes are wanted, " +
                    std::to_string(pool.bytes - pool.used) + " are left");
  }
  const uint64_t address = pool.base + pool.used;
  map_up_to(pool, address + size);
  pool.used += size;
  return address;
}

// torch turns null into its own out-of-memory error; the reason is kept as this thread's text.
void* taken(uint32_t index, ssize_t bytes) {
  try {
    return reinterpret_cast<void*>(take(pools[index], static_cast<uint64_t>(bytes)));
  } catch (...) {
    keep_current();
    return nullptr;
  }
}

}  // namespace

int32_t vcc_pool_reserve(uint64_t wanted, uint64_t bytes, uint64_t* got) {
  return guarded([&] {
    CUdeviceptr start = 0;
    VCC_CU(cuMemAddressReserve(&start, pages(bytes), kPage, wanted, 0));
    if (wanted != 0 && start != wanted) driver().cuMemAddressFree(start, pages(bytes));
    *got = start;
  });
}

int32_t vcc_pool_open(uint32_t index, int32_t ordinal, uint64_t base, uint64_t bytes) {
  return guarded([&] {
    Pool& pool = pool_at(index);
    VCC_EXPECT(pool.base == 0 && base != 0, "a pool is opened once");
    pool.ordinal = ordinal;
    pool.base = base;
    pool.bytes = bytes;
    pool.mapped = base / kPage * kPage;
  });
}

int32_t vcc_pool_used(uint32_t index, uint64_t* bytes) {
  return guarded([&] { *bytes = pool_at(index).used; });
}

int32_t vcc_pool_take(uint32_t index, uint64_t bytes, uint64_t* address) {
  return guarded([&] { *address = take(pool_at(index), bytes); });
}

void* vcc_pool_malloc_0(ssize_t bytes, int, void*) { return taken(0, bytes); }
void* vcc_pool_malloc_1(ssize_t bytes, int, void*) { return taken(1, bytes); }
void* vcc_pool_malloc_2(ssize_t bytes, int, void*) { return taken(2, bytes); }
void* vcc_pool_malloc_3(ssize_t bytes, int, void*) { return taken(3, bytes); }
void vcc_pool_free(void*, ssize_t, int, void*) {}
