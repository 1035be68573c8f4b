#include "player/expand.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "abi/error.h"

namespace vcc {

using table::NodeKind;
using table::RegionKind;
using table::SegmentKind;

namespace {

constexpr int64_t kReduceColumns = 1024;  // of a program of the kernel that sums split-K parts

// What a node that is no kernel is given: the fields of its parameter block.
struct MemsetFields {
  uint64_t target;
  uint32_t value, element;
  uint64_t width, height, pitch;
};
struct MemcpyFields {
  uint64_t target, source, bytes, unused[2];
};
struct GemmFields {
  uint64_t a, w, c, d, unused;
};
static_assert(sizeof(MemsetFields) == table::kFixedBlock);
static_assert(sizeof(MemcpyFields) == table::kFixedBlock);
static_assert(sizeof(GemmFields) == table::kFixedBlock);

[[noreturn]] void refuse(uint32_t node, const std::string& why) {
  throw Error(Code::kGraph, "cannot launch node " + std::to_string(node) + " of the table", why);
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void set_grid(Launch& launch, int axis, int64_t size) {
  if (size < 1 || size > table::kGridLimits[axis]) {
    refuse(launch.node,
           "its grid has size " + std::to_string(size) + " in dimension " + std::to_string(axis));
  }
  launch.grid[axis] = static_cast<uint32_t>(size);
}

// Zeroed parameter block of a kernel; entries of `pointers` are offsets until all are known.
std::span<std::byte> reserve(Launch& launch, Expansion& out) {
  const Function& function = *launch.shape->function;
  launch.block = (out.blocks.size() + 15) & ~uint64_t{15};
  out.blocks.resize(launch.block + function.param_bytes);
  launch.pointers = out.pointers.size();
  for (const auto& slot : function.slots) {
    out.pointers.push_back(reinterpret_cast<void*>(launch.block + slot.offset));
  }
  return {out.blocks.data() + launch.block, function.param_bytes};
}

template <class T>
void put(std::span<std::byte> block, const Function& function, size_t slot, T value) {
  if (slot >= function.slots.size() || function.slots[slot].bytes != sizeof value) {
    throw Error(Code::kIntegrity, "kernel " + function.name + " is no matrix product of vcc",
                "parameter " + std::to_string(slot) + " has another size",
                "rebuild the artifact: vcc compile");
  }
  std::memcpy(block.data() + function.slots[slot].offset, &value, sizeof value);
}

uint32_t end_of(const Expansion& out) { return static_cast<uint32_t>(out.launches.size()); }

}  // namespace

struct Expander::Source {
  const Table& table;
  const std::vector<Shape>& shapes;
  std::vector<uint64_t> bases;  // of its regions
  std::vector<int64_t> values;  // of its expressions
};

// Operands a, w, c, d and workspace of a product: address, and bytes up to the end of its region.
struct Expander::Operands {
  Place places[table::kOperands];
};

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
  largest_ = values(most);
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

void Expander::emit(const Source& source, const table::Node& node, uint32_t blame,
                    Expansion& out) const {
  if (node.kind == NodeKind::kGemm) return emit_gemm(source, node, blame, out);
  Launch launch;
  launch.node = blame;
  if (node.kind == NodeKind::kKernel) {
    launch.kind = LaunchKind::kKernel;
    launch.shape = &source.shapes[node.target];
    for (int axis = 0; axis < 3; ++axis) {
      set_grid(launch, axis, source.values[node.grid[axis]]);
    }
    fill(source.table.records(), node, source.values, source.bases, reserve(launch, out));
  } else if (node.kind == NodeKind::kMemset) {
    MemsetFields fields;
    fill(source.table.records(), node, source.values, source.bases,
         std::as_writable_bytes(std::span(&fields, 1)));
    const bool something = fields.width != 0 && fields.height != 0;
    launch.kind = something ? LaunchKind::kMemset : LaunchKind::kEmpty;
    launch.target = fields.target;
    launch.value = fields.value;
    launch.element = fields.element;
    launch.width = fields.width;
    launch.height = fields.height;
    launch.pitch = fields.pitch;
  } else if (node.kind == NodeKind::kMemcpy) {
    MemcpyFields fields;
    fill(source.table.records(), node, source.values, source.bases,
         std::as_writable_bytes(std::span(&fields, 1)));
    launch.kind = fields.bytes != 0 ? LaunchKind::kMemcpy : LaunchKind::kEmpty;
    launch.target = fields.target;
    launch.source = fields.source;
    launch.width = fields.bytes;
  }
  out.launches.push_back(launch);
}

Expander::Operands Expander::operands_of(const Source& source, const table::Node& node) const {
  GemmFields fields;
  fill(source.table.records(), node, source.values, source.bases,
       std::as_writable_bytes(std::span(&fields, 1)));
  Operands operands;
  const uint64_t addresses[] = {fields.a, fields.w, fields.c, fields.d};
  for (const auto& param : records_.params_of(node)) {
    const Place& place = places_[param.region];
    const uint64_t address = addresses[param.offset / 8];
    operands.places[param.offset / 8] = {address, place.bytes - (address - place.address)};
  }
  operands.places[table::kOperands - 1] = scratch();
  return operands;
}

void Expander::emit_gemm(const Source& source, const table::Node& node, uint32_t blame,
                         Expansion& out) const {
  const auto& gemm = records_.gemms[node.target];
  const int64_t rows = source.values[gemm.m];
  const GemmChoice choice = gemms_.must_choose(gemm, rows, largest_[gemm.m]);
  const Operands operands = operands_of(source, node);
  if (choice.route == GemmRoute::kStored) {
    emit_stored(*choice.stored, operands, blame, out);
  } else {
    emit_variant(source, gemm, rows, records_.variants[choice.variant], operands, blame, out);
  }
}

void Expander::emit_stored(const StoredGemm& stored, const Operands& operands, uint32_t blame,
                           Expansion& out) const {
  const auto& entry = stored.table.records();
  std::vector<uint64_t> bases;
  for (const auto& region : entry.regions) {
    const auto bytes = static_cast<uint64_t>(stored.values[region.size]);
    const Place& place = operands.places[region.index];
    if (bytes > place.bytes) {
      refuse(blame, "a stored matrix product needs " + std::to_string(bytes) +
                        " bytes of operand " + std::to_string(region.index) + ", here are " +
                        std::to_string(place.bytes));
    }
    bases.push_back(place.address);
  }
  const Source inner{stored.table, stored.shapes, std::move(bases), stored.values};
  const uint32_t base = end_of(out);
  for (const auto& node : entry.nodes) emit(inner, node, blame, out);
  for (uint32_t n = 1; n < entry.nodes.size() && entry.edges.empty(); ++n) {
    out.edges.push_back({base + n - 1, base + n, 0, 0, 0});
  }
  for (const auto& edge : entry.edges) {
    // In a chain one after another holds anyway; what counts is the data of such an edge.
    if (out.chain && edge.to != edge.from + 1) continue;
    out.edges.push_back(
        {base + edge.from, base + edge.to, edge.type, edge.from_port, edge.to_port});
  }
}

void Expander::emit_variant(const Source& source, const table::Gemm& gemm, int64_t rows,
                            const table::Variant& variant, const Operands& operands, uint32_t blame,
                            Expansion& out) const {
  const auto [a, w, c, d, workspace] =
      std::tuple(operands.places[0].address, operands.places[1].address, operands.places[2].address,
                 operands.places[3].address, operands.places[4]);
  const bool split = variant.split_k > 1;
  const uint64_t partials = split ? workspace.address : 0;
  const uint64_t needed = uint64_t{variant.split_k} * static_cast<uint64_t>(rows) * gemm.n * 4;
  if (split && needed > workspace.bytes) {
    refuse(blame, "partial products need " + std::to_string(needed) + " bytes of scratch");
  }
  const auto launch_with = [&](uint32_t kernel, std::initializer_list<uint64_t> pointers,
                               std::initializer_list<int64_t> numbers,
                               std::initializer_list<int64_t> grid) {
    Launch launch;
    launch.kind = LaunchKind::kKernel;
    launch.node = blame;
    launch.shape = &source.shapes[kernel];
    for (int axis = 0; axis < 3; ++axis) set_grid(launch, axis, grid.begin()[axis]);
    const auto block = reserve(launch, out);
    const Function& function = *launch.shape->function;
    size_t slot = 0;
    for (const uint64_t one : pointers) put(block, function, slot++, one);
    for (const int64_t one : numbers) put(block, function, slot++, static_cast<int32_t>(one));
    out.launches.push_back(launch);
  };
  launch_with(
      variant.kernel, {a, w, c, d, partials}, {rows, gemm.n, gemm.k},
      {ceil_div(gemm.n, variant.tile_n), ceil_div(rows, variant.tile_rows), variant.split_k});
  if (!split) return;
  launch_with(variant.reduce_kernel, {partials, c, d}, {rows, gemm.n},
              {ceil_div(gemm.n, kReduceColumns), rows, 1});
  out.edges.push_back({end_of(out) - 2, end_of(out) - 1, 0, 0, 0});
}

Place Expander::scratch() const {
  const auto region = table_.find_region(RegionKind::kScratch);
  if (region) return places_[*region];
  return places_.size() > records_.regions.size() ? places_.back() : Place{};
}

}  // namespace vcc
