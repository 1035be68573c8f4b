// A CUDA graph of a step, or of a part of one: built node by node and checked against what was
// meant before it is instantiated.
#pragma once

#include <cstdint>

#include "player/launch.h"

namespace vcc {

// Programmatic edges that were asked for, and those of them that the driver made full ones.
struct EdgeCounts {
  uint32_t programmatic = 0;
  uint32_t full = 0;
};

// Owns an executable graph.
class Graph {
 public:
  Graph() = default;
  // A graph of launches [first, first + count). The context is current. Throws Error(kGraph) when
  // the driver has other edges or attributes afterwards than were asked for; it names the node. A
  // full edge for a programmatic one is taken: it orders more, so the result is the same.
  Graph(const Expansion& expansion, uint32_t first, uint32_t count, CUcontext context);
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  void launch(CUstream stream) const;
  explicit operator bool() const { return executable_ != nullptr; }
  uint32_t nodes() const { return nodes_; }
  const EdgeCounts& edges() const { return edges_; }

 private:
  CUgraphExec executable_ = nullptr;
  uint32_t nodes_ = 0;
  EdgeCounts edges_;
};

// Launch [first, first + count) one after another on a stream.
void launch_plainly(const Expansion& expansion, uint32_t first, uint32_t count, CUstream stream);

}  // namespace vcc
