// How a step of a size runs: as one graph, graphs of its pieces, plain launches, or a mix. What was
// made for the latest sizes is kept.
#include <utility>

#include "player/player.h"
#include "player/timer.h"

namespace vcc {
namespace {

constexpr uint64_t kKeptBytes = 16 << 20;  // of plain launches that are kept for the next step

}  // namespace

const Prepared& Player::prepared(Mode mode, const Step& step) {
  const Key key{mode, step};
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    const Prepared& kept = found->second->second;
    if (kept.complete || kept.version == graphs_->version()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      return kept;
    }
    kept_bytes_ -= kept.expansion.bytes();
    recent_.erase(found->second);
    by_key_.erase(found);
  }
  const Timer timer(times_.prepare);
  Prepared made;
  made.version = graphs_->version();
  made.values = expander_->values(step);
  if (mode != Mode::kFull || !add_full(made, step)) {
    made.expansion = expander_->expand(step);
    if (mode == Mode::kPiecewise) {
      add_piecewise(made, step);
    } else {
      made.actions = {{nullptr, 0, static_cast<uint32_t>(made.expansion.launches.size())}};
      made.complete = mode == Mode::kPlain;
    }
  }
  kept_bytes_ += made.expansion.bytes();
  ++times_.prepared;
  recent_.emplace_front(key, std::move(made));
  by_key_[key] = recent_.begin();
  while (kept_bytes_ > kKeptBytes && recent_.size() > 1) {
    kept_bytes_ -= recent_.back().second.expansion.bytes();
    by_key_.erase(recent_.back().first);
    recent_.pop_back();
  }
  return recent_.front().second;
}

// A graph of the step itself, or of the step without its head or tail, which are then launched.
bool Player::add_full(Prepared& made, const Step& step) const {
  if (auto exact = graphs_->full(step)) {
    made.actions = {{std::move(exact), 0, 0}};
    return true;
  }
  Step wider = step;
  wider.sample = true;  // tokens that nobody asked for do no harm
  if (auto graph = step.sample ? nullptr : graphs_->full(wider)) {
    made.actions = {{std::move(graph), 0, 0}};
    return true;
  }
  for (const bool sample : {true, false}) {
    Step inner = step;
    inner.advance = false;
    inner.sample = sample;
    if (sample && !step.sample) continue;
    auto graph = graphs_->full(inner);
    if (graph == nullptr) continue;
    made.expansion = expander_->expand(step);
    bool placed = false;
    for (const Run& run : made.expansion.runs) {
      const auto kind = table_.segments()[run.segment].kind;
      const bool own =
          kind == table::SegmentKind::kAdvance || (kind == table::SegmentKind::kSample && !sample);
      if (own) {
        made.actions.push_back({nullptr, run.first, run.count});
      } else if (!std::exchange(placed, true)) {
        made.actions.push_back({graph, 0, 0});
      }
    }
    return true;
  }
  return false;
}

void Player::add_piecewise(Prepared& made, const Step& step) const {
  const auto pieces = graphs_->pieces(step.tokens, step.adapted);
  made.complete = pieces != nullptr;
  for (const Run& run : made.expansion.runs) {
    const Dependence& needs = expander_->dependences()[run.segment];
    // A piece that depends on more than the tokens has its graph for one value of that.
    const bool fits = pieces != nullptr && pieces->graphs[run.segment] &&
                      (!needs.seqs || pieces->step.seqs == step.seqs) &&
                      (!needs.when || pieces->step.uniform == step.uniform) &&
                      (!needs.adapted || pieces->step.adapted == step.adapted);
    if (fits) {
      made.actions.push_back({{pieces, &pieces->graphs[run.segment]}, 0, 0});
    } else if (!made.actions.empty() && made.actions.back().graph == nullptr) {
      made.actions.back().count += run.count;
    } else {
      made.actions.push_back({nullptr, run.first, run.count});
    }
  }
}

}  // namespace vcc
