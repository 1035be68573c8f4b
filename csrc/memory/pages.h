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
  size_t chunks() const { return has_.size(); }
  size_t mapped() const { return mapped_; }  // bytes
  bool has(size_t index) const { return has_[index]; }
  bool contains(CUdeviceptr address) const { return address - base_ < size_; }

  // Map the chunks of [first, last) that are not mapped. Transactional: when a call fails, none of
  // them is mapped that was not before.
  void map(size_t first, size_t last);

  // Map exactly these chunks, in ascending order, none of which is mapped. Transactional.
  void map_these(const std::vector<size_t>& indices);

  // Unmap one mapped chunk; its memory is the device's again.
  void unmap(size_t index);

  // Unmap what is mapped of these, whatever the driver says: for the way back from a failure.
  void unmap_quietly(const std::vector<size_t>& indices) noexcept;

  std::vector<size_t> mapped_chunks() const;

  // The device's smallest chunk.
  static size_t granularity(Device& device);

 private:
  CUdeviceptr at(size_t index) const { return base_ + index * chunk_; }
  void map_one(size_t index);
  void allow_access(const std::vector<size_t>& indices);

  std::shared_ptr<Device> device_;
  CUdeviceptr base_ = 0;
  size_t size_;
  size_t chunk_;
  size_t mapped_ = 0;
  std::vector<bool> has_;
};

}  // namespace vcc
