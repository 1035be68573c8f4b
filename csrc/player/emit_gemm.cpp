// A matrix product into launches: nodes of the GEMM store, or kernels of the table.
#include <cstring>
#include <initializer_list>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "abi/error.h"
#include "player/emit.h"

namespace vcc {
namespace {

constexpr int64_t kReduceColumns = 1024;  // of a program of the kernel that sums split-K parts
constexpr int64_t kSpreadLanes = 256;     // rows of a program of the kernel that spreads scales
constexpr int64_t kTurnTile = 32;  // rows and blocks of a program of the one that turns scales

// What a product is given: the fields of its parameter block.
struct GemmFields {
  uint64_t a, w, c, d, a_scale, w_scale;
};
static_assert(sizeof(GemmFields) == table::kGemmBlock);

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class T>
void put(std::span<std::byte> block, const Function& function, size_t slot, T value) {
  if (slot >= function.slots.size() || function.slots[slot].bytes != sizeof value) {
    throw Error(Code::kIntegrity, "kernel " + function.name + " is no matrix product of vcc",
                "parameter " + std::to_string(slot) + " has another size",
                "rebuild the artifact: vcc compile");
  }
  std::memcpy(block.data() + function.slots[slot].offset, &value, sizeof value);
}

// A launch of a kernel of vcc: pointers, then numbers, at the places that the driver says.
void launch_own(const Shape& shape, uint32_t blame, std::initializer_list<uint64_t> pointers,
                std::initializer_list<int64_t> numbers, std::initializer_list<int64_t> grid,
                Expansion& out) {
  Launch launch;
  launch.kind = LaunchKind::kKernel;
  launch.node = blame;
  launch.shape = &shape;
  for (int axis = 0; axis < 3; ++axis) set_grid(launch, axis, grid.begin()[axis]);
  const auto block = reserve(launch, out);
  size_t slot = 0;
  for (const uint64_t one : pointers) put(block, *shape.function, slot++, one);
  for (const int64_t one : numbers) put(block, *shape.function, slot++, static_cast<int32_t>(one));
  out.launches.push_back(launch);
}

}  // namespace

Expander::Operands Expander::operands_of(const Source& source, const table::Node& node) const {
  GemmFields fields;
  fill(source.table.records(), node, source.values, source.bases,
       std::as_writable_bytes(std::span(&fields, 1)));
  Operands operands;
  constexpr uint32_t kIndices[] = {0, 1, 2, 3, table::kAScale, table::kWScale};
  const uint64_t addresses[] = {fields.a, fields.w,       fields.c,
                                fields.d, fields.a_scale, fields.w_scale};
  for (const auto& param : records_.params_of(node)) {
    const Place& place = places_[param.region];
    const uint64_t address = addresses[param.offset / 8];
    operands.places[kIndices[param.offset / 8]] = {address,
                                                   place.bytes - (address - place.address)};
  }
  operands.places[table::kWorkspaceOperand] = scratch();
  return operands;
}

void Expander::emit_gemm(const Source& source, const table::Node& node, uint32_t blame,
                         Expansion& out) const {
  const auto& gemm = records_.gemms[node.target];
  const int64_t rows = source.values[gemm.m];
  const GemmChoice choice = gemms_.must_choose(gemm, rows, largest_[gemm.m]);
  Operands operands = operands_of(source, node);
  if (choice.route == GemmRoute::kStored) {
    if (gemm.scales == table::Scales::kBlocks) {
      spread(source, gemm, rows, choice, operands, blame, out);
    }
    emit_stored(*choice.stored, operands, blame, out);
  } else if (gemm.scales == table::Scales::kNone) {
    emit_variant(source, gemm, rows, records_.variants[choice.variant], operands, blame, out);
  } else {
    emit_scaled(source, gemm, rows, records_.variants[choice.variant], operands, blame, out);
  }
}

// Writes scales behind the workspace as stored nodes read them, where those of the table lie in
// another way: each launch follows the one before, and all stored nodes follow the last.
void Expander::spread(const Source& source, const table::Gemm& gemm, int64_t rows,
                      const GemmChoice& choice, Operands& operands, uint32_t blame,
                      Expansion& out) const {
  const Spread wanted(shape_of(gemm), choice.rows, choice.stored->workspace);
  const Place& space = operands.places[table::kWorkspaceOperand];
  if (wanted.scratch() > space.bytes) {
    refuse_launch(blame,
                  "spread scales need " + std::to_string(wanted.scratch()) + " bytes of scratch");
  }
  const Shape& kernel = source.shapes[spreading_kernel(records_, shape_of(gemm))];
  const auto write = [&](uint32_t operand, Place to, int64_t columns, int64_t lines,
                         int64_t pitch) {
    Place& scales = operands.places[operand];
    launch_own(kernel, blame, {scales.address, to.address}, {columns, lines, pitch},
               {ceil_div(columns, kSpreadLanes), lines, 1}, out);
    scales = to;
  };
  const auto nodes = static_cast<uint32_t>(choice.stored->table.records().nodes.size());
  if (choice.rows != rows) {
    write(table::kAScale, {space.address + wanted.a_at, wanted.a_bytes}, rows, wanted.across,
          choice.rows);
    follow(wanted.of_w ? 1 : nodes, out);
  }
  if (wanted.of_w) {
    write(table::kWScale, {space.address + wanted.w_at, wanted.w_bytes}, wanted.across, wanted.down,
          wanted.pitch);
    follow(nodes, out);
  }
}

// The next launches follow the last one by edges, where launches are no chain.
void Expander::follow(uint32_t launches, Expansion& out) const {
  for (uint32_t n = 0; n < launches && !out.chain; ++n) {
    out.edges.push_back({end_of(out) - 1, end_of(out) + n, 0, 0, 0});
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
      refuse_launch(blame, "a stored matrix product needs " + std::to_string(bytes) +
                               " bytes of operand " + std::to_string(region.index) + ", here are " +
                               std::to_string(place.bytes));
    }
    if (place.address % region.alignment != 0) {
      refuse_launch(blame, "a stored matrix product needs operand " + std::to_string(region.index) +
                               " at a multiple of " + std::to_string(region.alignment));
    }
    bases.push_back(place.address);
  }
  const Source inner{stored.table, stored.shapes, std::move(bases), stored.values};
  const uint32_t base = end_of(out);
  for (const auto& node : entry.nodes) emit(inner, node, blame, out);
  for (uint32_t n = 1; n < entry.nodes.size() && entry.edges.empty(); ++n) {
    out.edges.push_back({base + n - 1, base + n, 0, 0, 0});
  }
  // Full edges, where cuBLASLt has programmatic ones too: a step takes as long, and the host
  // launches its graph in half the time (decision 0022).
  for (const auto& edge : entry.edges) {
    if (!out.chain) out.edges.push_back({base + edge.from, base + edge.to, 0, 0, 0});
  }
}

void Expander::emit_variant(const Source& source, const table::Gemm& gemm, int64_t rows,
                            const table::Variant& variant, const Operands& operands, uint32_t blame,
                            Expansion& out) const {
  const auto [a, w, c, d, workspace] =
      std::tuple(operands.places[0].address, operands.places[1].address, operands.places[2].address,
                 operands.places[3].address, operands.places[table::kWorkspaceOperand]);
  const bool split = variant.split_k > 1;
  const uint64_t partials = split ? workspace.address : 0;
  const uint64_t needed = uint64_t{variant.split_k} * static_cast<uint64_t>(rows) * gemm.n * 4;
  if (split && needed > workspace.bytes) {
    refuse_launch(blame, "partial products need " + std::to_string(needed) + " bytes of scratch");
  }
  launch_own(source.shapes[variant.kernel], blame, {a, w, c, d, partials}, {rows, gemm.n, gemm.k},
             {ceil_div(gemm.n, variant.tile_n), ceil_div(rows, variant.tile_rows), variant.split_k},
             out);
  if (!split) return;
  launch_own(source.shapes[variant.reduce_kernel], blame, {partials, c, d}, {rows, gemm.n},
             {ceil_div(gemm.n, kReduceColumns), rows, 1}, out);
  out.edges.push_back({end_of(out) - 2, end_of(out) - 1, 0, 0, 0});
}

void Expander::emit_scaled(const Source& source, const table::Gemm& gemm, int64_t rows,
                           const table::Variant& variant, const Operands& operands, uint32_t blame,
                           Expansion& out) const {
  const auto at = [&](uint32_t index) { return operands.places[index].address; };
  const int64_t programs = ceil_div(gemm.n, variant.tile_n) * ceil_div(rows, variant.tile_rows);
  launch_own(source.shapes[variant.kernel], blame,
             {at(0), at(1), at(table::kAScale), at(table::kWScale), at(2), at(3)}, {rows},
             {programs, 1, 1}, out);
}

}  // namespace vcc
