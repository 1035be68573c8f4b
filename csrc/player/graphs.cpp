#include "player/graphs.h"

#include <algorithm>
#include <utility>

#include "abi/error.h"

namespace vcc {

Graphs::Graphs(std::shared_ptr<Device> device, const Table& table, const Expander& expander)
    : device_(std::move(device)), table_(table), expander_(expander) {}

Graphs::~Graphs() {
  stop_.store(true);
  wait();
}

void Graphs::build(std::vector<Descriptor> descriptors, uint32_t hot, uint32_t threads) {
  VCC_EXPECT(descriptors_.empty(), "graphs are built once");
  descriptors_ = std::move(descriptors);
  const auto count = static_cast<uint32_t>(descriptors_.size());
  hot = std::min(hot, count);
  {
    const std::lock_guard lock(lock_);
    counts_.wanted = count;
  }
  for (uint32_t i = 0; i < hot; ++i) build_one(descriptors_[i]);
  next_.store(hot);
  for (uint32_t i = 0; i < std::min(threads, count - hot); ++i) {
    threads_.emplace_back([this] { work(); });
  }
  if (threads == 0) work();
}

void Graphs::wait() {
  const std::lock_guard lock(joining_);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

GraphCounts Graphs::counts() const {
  const std::lock_guard lock(lock_);
  return counts_;
}

std::shared_ptr<const Graph> Graphs::full(const Step& step) const {
  const std::lock_guard lock(lock_);
  const auto found = full_.find(step);
  return found == full_.end() ? nullptr : found->second;
}

std::shared_ptr<const PieceGraphs> Graphs::pieces(int64_t tokens, bool adapted) const {
  const std::lock_guard lock(lock_);
  const auto found = pieces_.find({tokens, adapted});
  return found == pieces_.end() ? nullptr : found->second;
}

void Graphs::work() {
  for (uint32_t i = next_++; i < descriptors_.size() && !stop_.load(); i = next_++) {
    try {
      device_->use();
      build_one(descriptors_[i]);
    } catch (const std::exception& error) {
      // The step runs as plain launches; whoever asks for the counts is told.
      const auto* known = dynamic_cast<const Error*>(&error);
      const std::lock_guard lock(lock_);
      if (counts_.failed++ == 0) {
        counts_.failure = known == nullptr ? error.what() : known->task + ": " + known->why;
      }
    }
  }
}

void Graphs::build_one(const Descriptor& descriptor) {
  const Expansion expansion = expander_.expand(descriptor.step);
  std::shared_ptr<const Graph> full;
  auto pieces = std::make_shared<PieceGraphs>();
  uint32_t made = 0;
  EdgeCounts edges;
  const auto count_in = [&](const Graph& graph) {
    ++made;
    edges.programmatic += graph.edges().programmatic;
    edges.full += graph.edges().full;
  };
  if (descriptor.mode == Mode::kFull) {
    const auto count = static_cast<uint32_t>(expansion.launches.size());
    full = std::make_shared<const Graph>(expansion, 0, count, device_->context());
    count_in(*full);
  } else {
    pieces->step = descriptor.step;
    pieces->graphs.resize(table_.segments().size());
    for (const Run& run : expansion.runs) {
      if (table_.segments()[run.segment].kind != table::SegmentKind::kPiece || run.count == 0)
        continue;
      pieces->graphs[run.segment] = Graph(expansion, run.first, run.count, device_->context());
      count_in(pieces->graphs[run.segment]);
    }
  }
  const std::lock_guard lock(lock_);
  if (full != nullptr) {
    full_[descriptor.step] = std::move(full);
  } else {
    pieces_[{descriptor.step.tokens, descriptor.step.adapted}] = std::move(pieces);
  }
  ++counts_.ready;
  counts_.graphs += made;
  counts_.edges.programmatic += edges.programmatic;
  counts_.edges.full += edges.full;
  version_.fetch_add(1, std::memory_order_release);
}

}  // namespace vcc
