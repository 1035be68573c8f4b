#include "player/expand.h"

#include <algorithm>
#include <string>
#include <utility>

#include "abi/error.h"
#include "player/emit.h"

namespace vcc {

using table::NodeKind;
using table::RegionKind;
using table::SegmentKind;

Expander::Expander(const Table& table, const std::vector<Shape>& shapes,
                   const std::vector<Place>& places, const Gemms& gemms, int64_t blocks)
    : table_(table),
      records_(table.records()),
      shapes_(shapes),
      places_(places),
      gemms_(gemms),
      blocks_(blocks) {
  Step most;
  for (const auto& symbol : records_.symbols) {
    const auto name = table.text(symbol.name);
    if (name == "T") most.tokens = symbol.high;
    if (name == "B") most.seqs = symbol.high;
  }
  table_.evaluate_most(sizes(most), largest_);
  find_dependences();
}

void Expander::find_dependences() {
  const auto seqs = table_.find_symbol("B");
  std::vector<bool> reads;  // by expression: whether B is in it
  for (const auto& expr : records_.exprs) {
    const bool found = expr.op == table::Op::kSymbol  ? seqs && expr.a == *seqs
                       : expr.op == table::Op::kConst ? false
                                                      : reads[expr.a] || reads[expr.b];
    reads.push_back(found);
  }
  for (const auto& segment : records_.segments) {
    Dependence found;
    for (const auto& node : records_.nodes.subspan(segment.first_node, segment.nodes)) {
      const bool adapted = node.when == table::When::kAdapted;
      found.adapted |= adapted;
      found.when |= node.when != table::When::kAlways && !adapted;
      if (node.kind == NodeKind::kKernel) {
        for (const uint32_t size : node.grid) found.seqs |= reads[size];
      }
      if (node.kind == NodeKind::kGemm) found.seqs |= reads[records_.gemms[node.target].m];
      for (const auto& param : records_.params_of(node)) {
        const bool expr =
            param.kind != table::ParamKind::kBytes && param.kind != table::ParamKind::kNull;
        if (expr) found.seqs |= reads[param.expr];
      }
    }
    dependences_.push_back(found);
  }
}

std::vector<int64_t> Expander::sizes(const Step& step) const {
  std::vector<int64_t> sizes;
  for (const auto& symbol : records_.symbols) {
    const auto name = table_.text(symbol.name);
    const int64_t size = name == "T"   ? step.tokens
                         : name == "B" ? step.seqs
                         : name == "K" ? blocks_
                                       : symbol.low;
    if (size < symbol.low || size > symbol.high) {
      const char* what = name == "T" ? " tokens" : name == "B" ? " sequences" : " KV blocks";
      throw Error(Code::kUsage, "a step of " + std::to_string(size) + what + " cannot run",
                  "the artifact serves " + std::to_string(symbol.low) + " to " +
                      std::to_string(symbol.high),
                  "compile it for more: --max-num-batched-tokens, --max-num-seqs");
    }
    sizes.push_back(size);
  }
  return sizes;
}

std::vector<int64_t> Expander::values(const Step& step) const {
  std::vector<int64_t> values;
  table_.evaluate(sizes(step), values);
  return values;
}

Expansion Expander::expand(const Step& step) const {
  Source source{table_, shapes_, {}, values(step)};
  for (size_t i = 0; i < records_.regions.size(); ++i) source.bases.push_back(places_[i].address);
  Expansion out;
  out.chain = records_.edges.empty();
  std::vector<Run> homes;  // by node of the table: its launches
  for (uint32_t s = 0; s < records_.segments.size(); ++s) {
    const auto& segment = records_.segments[s];
    const bool wanted = segment.kind == SegmentKind::kAdvance  ? step.advance
                        : segment.kind == SegmentKind::kSample ? step.sample
                                                               : true;
    const uint32_t start = end_of(out);
    for (uint32_t n = segment.first_node; n < segment.first_node + segment.nodes; ++n) {
      const uint32_t before = end_of(out);
      const auto& node = records_.nodes[n];
      if (wanted && runs(node, step.uniform, step.adapted)) emit(source, node, n, out);
      homes.push_back({n, before, end_of(out) - before});
    }
    if (end_of(out) > start) out.runs.push_back({s, start, end_of(out) - start});
  }
  if (!out.chain) connect(homes, out);
  for (void*& pointer : out.pointers) {
    pointer = out.blocks.data() + reinterpret_cast<uintptr_t>(pointer);
  }
  return out;
}

// Edges of the table between launches. A node without launches hands its predecessors on.
void Expander::connect(const std::vector<Run>& homes, Expansion& out) const {
  std::vector<std::vector<LaunchEdge>> into(records_.nodes.size());
  std::vector<uint32_t> order(records_.edges.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return records_.edges[a].to < records_.edges[b].to;
  });
  for (const uint32_t i : order) {  // all edges into a node before those out of it
    const auto& edge = records_.edges[i];
    const Run& from = homes[edge.from];
    if (from.count == 0) {
      for (const LaunchEdge& before : into[edge.from]) {
        into[edge.to].push_back({before.from, 0, 0, 0, 0});
      }
    } else {
      into[edge.to].push_back(
          {from.first + from.count - 1, 0, edge.type, edge.from_port, edge.to_port});
    }
  }
  for (const Run& home : homes) {
    if (home.count == 0) continue;
    for (LaunchEdge edge : into[home.segment]) {
      edge.to = home.first;
      out.edges.push_back(edge);
    }
  }
  const auto key = [](const LaunchEdge& edge) { return std::pair(edge.from, edge.to); };
  std::stable_sort(out.edges.begin(), out.edges.end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
  out.edges.erase(std::unique(out.edges.begin(), out.edges.end(),
                              [&](const auto& a, const auto& b) { return key(a) == key(b); }),
                  out.edges.end());
}

Place Expander::scratch() const {
  const auto region = table_.find_region(RegionKind::kScratch);
  if (region) return places_[*region];
  return places_.size() > records_.regions.size() ? places_.back() : Place{};
}

}  // namespace vcc
