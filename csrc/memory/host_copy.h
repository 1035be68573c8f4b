// Contents of device memory, kept in ordinary host memory and moved through a ring.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "driver/device.h"
#include "memory/host_memory.h"
#include "memory/ring.h"

namespace vcc {

class HostCopy {
 public:
  using Places = std::vector<std::pair<CUdeviceptr, size_t>>;  // ascending, not overlapping

  // Copy these places; done when it returns. Throws kDevice: no host memory, or a failed call.
  HostCopy(Ring& ring, const Places& places, TransferTimes& times);
  ~HostCopy();
  HostCopy(const HostCopy&) = delete;
  HostCopy& operator=(const HostCopy&) = delete;

  // Do not copy back into this range: it is gone.
  void forget(CUdeviceptr from, size_t size);

  size_t bytes() const { return memory_.size(); }

  // Copies back while device memory is being mapped, from low addresses to high.
  class Return {
   public:
    Return(HostCopy& copy, Ring& ring);
    ~Return();

    // Everything below this address is mapped.
    void open_below(CUdeviceptr limit);

    // Wait until all contents are back. Throws the first error.
    TransferTimes finish();

   private:
    class Sending;
    const HostCopy& copy_;
    std::unique_ptr<Sending> sending_;
    Transfer transfer_;
    size_t open_ = 0;
  };

 private:
  struct Run {
    CUdeviceptr device;
    size_t size;
    bool present;  // false: its memory is gone for good
  };

  // Runs that lie one after another in host memory and fill a slot.
  struct Piece {
    size_t first_run, runs;
    size_t offset, size;
  };

  class Receiving;

  void cut(const Places& places, size_t slot_bytes);

  HostMemory memory_;
  std::vector<Run> runs_;
  std::vector<Piece> pieces_;
};

}  // namespace vcc
