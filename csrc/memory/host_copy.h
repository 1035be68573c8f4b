// Contents of device memory, kept in pinned host memory, and copied back at the link's full rate.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "driver/device.h"

namespace vcc {

class HostCopy {
 public:
  using Places = std::vector<std::pair<CUdeviceptr, size_t>>;  // ascending, not overlapping

  // Pin memory and copy these places into it; done when it returns. Throws kDevice.
  HostCopy(std::shared_ptr<Device> device, const Places& places);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  // Begin to copy back every piece that was not begun yet and ends at or below `limit`.
  void start_below(CUdeviceptr limit);

  // Wait for the copies that were begun. Throws kDevice.
  void wait();

  // Wait for the copies that were begun, whatever became of them.
  void settle() noexcept;

  // The next start_below begins with the first piece again.
  void rewind();

  // Do not copy back into this range: it is gone.
  void forget(CUdeviceptr from, size_t size);

  size_t bytes() const { return bytes_; }

 private:
  struct Piece {
    CUdeviceptr device;
    char* host;
    size_t size;
  };

  void pin(const Places& places);
  void release() noexcept;

  std::shared_ptr<Device> device_;
  std::vector<void*> buffers_;
  std::vector<Piece> pieces_;
  std::vector<CUstream> streams_;
  size_t next_ = 0;
  size_t bytes_ = 0;
};

}  // namespace vcc
