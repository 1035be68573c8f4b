// The graphs of a player: the hot ones built at once, the others by threads behind them. Readers
// never wait: what is not there yet runs as plain launches.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "driver/device.h"
#include "player/expand.h"
#include "player/graph.h"

namespace vcc {

enum class Mode : uint32_t { kPlain = 0, kFull = 1, kPiecewise = 2 };

// A graph to build: of a whole step, or (kPiecewise) one of every piece.
struct Descriptor {
  Mode mode;
  Step step;
};

// Graphs of the pieces of a table, by segment; segments without one are empty.
struct PieceGraphs {
  Step step;
  std::vector<Graph> graphs;
};

struct GraphCounts {
  uint32_t wanted = 0;  // descriptors
  uint32_t ready = 0;   // descriptors
  uint32_t failed = 0;  // descriptors
  uint32_t graphs = 0;  // executable graphs
  std::string failure;  // of the first that failed
  EdgeCounts edges;     // of all graphs
};

class Graphs {
 public:
  Graphs(std::shared_ptr<Device> device, const Table& table, const Expander& expander);
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Build the first `hot` of the descriptors now (throws what fails) and the others in `threads`
  // threads. Called once.
  void build(std::vector<Descriptor> descriptors, uint32_t hot, uint32_t threads);
  // Until every thread is done.
  void wait();
  GraphCounts counts() const;

  // The graph of exactly this step, or nullptr.
  std::shared_ptr<const Graph> full(const Step& step) const;
  std::shared_ptr<const PieceGraphs> pieces(int64_t tokens, bool adapted) const;
  // Changes whenever one more is ready.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  void build_one(const Descriptor& descriptor);
  void work();

  std::shared_ptr<Device> device_;
  const Table& table_;
  const Expander& expander_;
  std::vector<Descriptor> descriptors_;
  std::atomic<uint32_t> next_{0};
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> version_{0};
  mutable std::mutex lock_;
  std::map<Step, std::shared_ptr<const Graph>> full_;
  std::map<std::pair<int64_t, bool>, std::shared_ptr<const PieceGraphs>> pieces_;
  GraphCounts counts_;
  std::mutex joining_;
  std::vector<std::thread> threads_;
};

}  // namespace vcc
