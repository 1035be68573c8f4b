// A CUDA graph of a step, or of a part of one: built node by node and checked against what was
// meant before it is instantiated.
#pragma once

#include <cstdint>

#include "player/launch.h"

namespace vcc {

// Owns an executable graph.
class Graph {
 public:
  Graph() = default;
  // A graph of launches [first, first + count). The context is current. Throws Error(kGraph) when
  // the driver has other edges or attributes afterwards than were asked for; it names the node.
  Graph(const Expansion& expansion, uint32_t first, uint32_t count, CUcontext context);
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  void launch(CUstream stream) const;
  explicit operator bool() const { return executable_ != nullptr; }
  uint32_t nodes() const { return nodes_; }

 private:
  CUgraphExec executable_ = nullptr;
  uint32_t nodes_ = 0;
};

// Launch [first, first + count) one after another on a stream.
void launch_plainly(const Expansion& expansion, uint32_t first, uint32_t count, CUstream stream);

}  // namespace vcc
