#include "pages.h"

namespace vcc {

namespace {

CUmemAllocationProp device_memory(const Device& device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device.id()};
  return properties;
}

}  // namespace

size_t Pages::granularity(Device& device) {
  const CUmemAllocationProp properties = device_memory(device);
  size_t size = 0;
  VCC_CU(cuMemGetAllocationGranularity(&size, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return size;
}

Pages::Pages(std::shared_ptr<Device> device, size_t size, size_t chunk)
    : device_(std::move(device)), size_((size + chunk - 1) / chunk * chunk), chunk_(chunk) {
  VCC_CU(cuMemAddressReserve(&base_, size_, 0, 0, 0));
  has_.resize(size_ / chunk_);
}

Pages::~Pages() {
  if (device_->lost()) return;  // the context's end frees everything
  unmap_quietly(mapped_chunks());
  driver().cuMemAddressFree(base_, size_);
}

void Pages::map(size_t first, size_t last) {
  std::vector<size_t> wanted;
  for (size_t i = first; i < last; ++i) {
    if (!has_[i]) wanted.push_back(i);
  }
  map_these(wanted);
}

void Pages::map_these(const std::vector<size_t>& indices) {
  try {
    for (const size_t index : indices) map_one(index);
    allow_access(indices);
  } catch (...) {
    unmap_quietly(indices);
    throw;
  }
}

// The handle is released at once: from then on the mapping alone keeps the memory.
void Pages::map_one(size_t index) {
  const CUmemAllocationProp properties = device_memory(*device_);
  CUmemGenericAllocationHandle handle = 0;
  VCC_CU(cuMemCreate(&handle, chunk_, &properties, 0));
  const CUresult mapped = driver().cuMemMap(at(index), chunk_, 0, handle, 0);
  const CUresult released = driver().cuMemRelease(handle);
  if (mapped != CUDA_SUCCESS) fail_call(mapped, "cuMemMap(", __FILE__, __LINE__);
  has_[index] = true;
  mapped_ += chunk_;
  if (released != CUDA_SUCCESS) fail_call(released, "cuMemRelease(", __FILE__, __LINE__);
}

void Pages::allow_access(const std::vector<size_t>& indices) {
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device_->id()},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (size_t i = 0; i < indices.size();) {
    size_t run = 1;
    while (i + run < indices.size() && indices[i + run] == indices[i] + run) ++run;
    VCC_CU(cuMemSetAccess(at(indices[i]), run * chunk_, &access, 1));
    i += run;
  }
}

void Pages::unmap(size_t index) {
  VCC_EXPECT(has_[index], "a chunk that is not mapped cannot be unmapped");
  VCC_CU(cuMemUnmap(at(index), chunk_));
  has_[index] = false;
  mapped_ -= chunk_;
}

void Pages::unmap_quietly(const std::vector<size_t>& indices) noexcept {
  for (const size_t index : indices) {
    if (!has_[index]) continue;
    if (driver().cuMemUnmap(at(index), chunk_) != CUDA_SUCCESS) continue;
    has_[index] = false;
    mapped_ -= chunk_;
  }
}

std::vector<size_t> Pages::mapped_chunks() const {
  std::vector<size_t> found;
  for (size_t i = 0; i < has_.size(); ++i) {
    if (has_[i]) found.push_back(i);
  }
  return found;
}

}  // namespace vcc
