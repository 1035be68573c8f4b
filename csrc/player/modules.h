// Cubins on the device: loaded once a digest, their kernels checked before the first launch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "player/launch.h"

namespace vcc {

// What a table says of a kernel.
struct KernelNeeds {
  std::string_view digest;  // SHA-256 of the cubin in hex
  std::string_view function;
  uint32_t param_bytes;
  uint32_t shared;
  int32_t carveout;
  bool large_cluster;
};

// Any thread may call any function; what `function` returns stays.
class Modules {
 public:
  Modules() = default;
  ~Modules();
  Modules(const Modules&) = delete;
  Modules& operator=(const Modules&) = delete;

  // Load a cubin; a second one of the same digest changes nothing. The context is current.
  void add(std::string_view digest, std::span<const uint8_t> cubin);

  // A kernel, loaded, with its attributes set. Its parameter block has the size that the table
  // says, the cubin says and the driver says: a difference is Error(kIntegrity).
  const Function& function(const KernelNeeds& needs);

  size_t modules() const;

 private:
  struct Module {
    CUmodule handle = nullptr;
    uint64_t bytes = 0;
    std::map<std::string, uint32_t, std::less<>> parameters;  // by kernel, as the cubin says
    std::map<std::string, std::unique_ptr<Function>, std::less<>> functions;
    std::map<std::string, uint32_t, std::less<>> shared;  // most asked for so far
  };

  mutable std::mutex lock_;
  std::map<std::string, Module, std::less<>> modules_;
};

}  // namespace vcc
