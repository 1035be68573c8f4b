// A graph built node by node from numbers, for proofs and benchmarks: what was recorded is launched
// at other addresses and compared. Steps of a model are played by csrc/player.
#pragma once

#include <cstdint>
#include <vector>

#include "recorder/calls.h"

namespace vcc::recorder {

struct Edge {
  uint32_t from, to, type, from_port, to_port;
};

struct FunctionSettings {
  int max_dynamic;   // bytes of dynamic shared memory that are allowed; 0 leaves the default
  int carveout;      // -1 leaves the default
  int non_portable;  // cluster sizes beyond the portable ones
};

CUfunction load_function(const void* cubin, const char* name, const FunctionSettings& settings);

class Replay {
 public:
  Replay();
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // Dimensions are grid x, y, z, block x, y, z, bytes of dynamic shared memory.
  void kernel(CUfunction function, const uint32_t (&dimensions)[7],
              const std::vector<uint8_t>& parameters, const CUlaunchAttribute* attributes,
              size_t count);
  void memset(const CUDA_MEMSET_NODE_PARAMS& node);
  void memcpy(uint64_t target, uint64_t source, uint64_t bytes);
  void empty();
  void edges(const Edge* edges, size_t count);

  void instantiate();

  // Launch several times and wait; microseconds of the device for one.
  double launch(uint32_t times);

 private:
  CUgraphNode& added();

  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
  CUcontext context_ = nullptr;
  std::vector<CUgraphNode> nodes_;
};

}  // namespace vcc::recorder
