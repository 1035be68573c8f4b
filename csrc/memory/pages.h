// A reserved range of device addresses and the physical memory mapped into it, chunk by chunk.
// Addresses stay for the life of the object; memory comes and goes.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "driver/device.h"

namespace vcc {

class Pages {
 public:
  // Reserve `size` bytes (rounded up) to be mapped in chunks of `chunk` bytes, a multiple of the
  // device's granularity. Throws kDevice.
  Pages(std::shared_ptr<Device> device, size_t size, size_t chunk);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  CUdeviceptr base() const { return base_; }
  size_t size() const { return size_; }
  size_t chunk() const { return chunk_; }
  size_t chunks() const { return handles_.size(); }
  size_t mapped() const { return mapped_; }  // bytes
  bool has(size_t index) const { return handles_[index] != 0; }
  bool contains(CUdeviceptr address) const { return address - base_ < size_; }

  // Map the chunks [first, last) that are not mapped. Transactional: when a call fails, none of
  // them is mapped that was not before. Returns how many were mapped.
  size_t map(size_t first, size_t last);

  // Map exactly these chunks, none of which is mapped. Transactional.
  void map_these(const std::vector<size_t>& indices);

  // Unmap the mapped chunks of [first, last). Stops at a call that fails: what was unmapped until
  // then stays so. Returns how many were unmapped.
  size_t unmap(size_t first, size_t last);

  std::vector<size_t> mapped_chunks() const;

  // The device's smallest chunk.
  static size_t granularity(Device& device);

 private:
  CUdeviceptr at(size_t index) const { return base_ + index * chunk_; }
  void map_one(size_t index);
  void allow_access(const std::vector<size_t>& indices);
  void drop_one(size_t index);
  void undo(const std::vector<size_t>& indices, size_t done) noexcept;

  std::shared_ptr<Device> device_;
  CUdeviceptr base_ = 0;
  size_t size_;
  size_t chunk_;
  size_t mapped_ = 0;
  std::vector<CUmemGenericAllocationHandle> handles_;  // 0: not mapped
};

}  // namespace vcc
