#include "table/reader.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

#include "abi/error.h"
#include "table/expr.h"

namespace vcc::table {

namespace {

[[noreturn]] void fail(const std::string& what, const std::string& why) {
  throw Error(Code::kGraph, what, why);
}

// The table was read: at its lowest and highest sizes everything lies inside its region.
void check_ends(const Records& records) {
  std::vector<int64_t> sizes(records.symbols.size()), values(records.exprs.size());
  for (const auto end : {&Symbol::low, &Symbol::high}) {
    for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = records.symbols[i].*end;
    evaluate(records.exprs, sizes, values.data());
    check_bounds(records, values);
  }
}

void put(std::span<std::byte> block, const Param& param, const void* from) {
  std::memcpy(block.data() + param.offset, from, width_of(param));
}

}  // namespace

Table::Table(std::vector<std::byte> bytes)
    : bytes_(std::move(bytes)), records_(read_frame(bytes_)) {
  check_records(records_);
  check_ends(records_);
  by_name_.resize(records_.tensors.size());
  std::iota(by_name_.begin(), by_name_.end(), 0);
  std::sort(by_name_.begin(), by_name_.end(), [&](uint32_t a, uint32_t b) {
    return text(records_.tensors[a].name) < text(records_.tensors[b].name);
  });
}

Table::Table(std::span<const std::byte> bytes)
    : Table((check_file_size(bytes.size()), std::vector(bytes.begin(), bytes.end()))) {}

const Tensor* Table::find_tensor(std::string_view name) const {
  const auto name_of = [&](uint32_t index) { return text(records_.tensors[index].name); };
  const auto at = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](uint32_t index, std::string_view wanted) { return name_of(index) < wanted; });
  if (at == by_name_.end() || name_of(*at) != name) return nullptr;
  return &records_.tensors[*at];
}

std::optional<uint32_t> Table::find_symbol(std::string_view name) const {
  for (uint32_t i = 0; i < records_.symbols.size(); ++i)
    if (text(records_.symbols[i].name) == name) return i;
  return std::nullopt;
}

std::optional<uint32_t> Table::find_region(RegionKind kind, uint32_t index) const {
  for (uint32_t i = 0; i < records_.regions.size(); ++i)
    if (records_.regions[i].kind == kind && records_.regions[i].index == index) return i;
  return std::nullopt;
}

void Table::check_sizes(std::span<const int64_t> sizes) const {
  const auto symbols = records_.symbols;
  if (sizes.size() != symbols.size())
    fail("cannot size the graph",
         std::to_string(sizes.size()) + " sizes given, it has " + std::to_string(symbols.size()));
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] < symbols[i].low || sizes[i] > symbols[i].high)
      fail("cannot size the graph", std::string(text(symbols[i].name)) + " is " +
                                        std::to_string(sizes[i]) + ", it was built for " +
                                        std::to_string(symbols[i].low) + " to " +
                                        std::to_string(symbols[i].high));
}

void Table::evaluate(std::span<const int64_t> sizes, std::vector<int64_t>& values) const {
  check_sizes(sizes);
  values.resize(records_.exprs.size());
  table::evaluate(records_.exprs, sizes, values.data());
  try {
    check_bounds(records_, values);
  } catch (const Error& error) {
    fail("cannot size the graph", error.why);
  }
}

std::array<uint32_t, 3> Table::grid(const Node& node, std::span<const int64_t> values) const {
  std::array<uint32_t, 3> grid;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t size = values[node.grid[axis]];
    if (size < 1 || size > kGridLimits[axis])
      fail("cannot launch " + std::string(text(records_.kernels[node.target].function)),
           "its grid has size " + std::to_string(size) + " in dimension " + std::to_string(axis));
    grid[axis] = static_cast<uint32_t>(size);
  }
  return grid;
}

uint32_t Table::block_bytes(const Node& node) const {
  return node.kind == NodeKind::kKernel ? records_.kernels[node.target].param_bytes : kFixedBlock;
}

void Table::fill(const Node& node, std::span<const int64_t> values, std::span<const uint64_t> bases,
                 std::span<std::byte> block) const {
  VCC_EXPECT(block.size() == block_bytes(node) && bases.size() == records_.regions.size(),
             "a node's parameter block has another size");
  std::fill(block.begin(), block.end(), std::byte{0});
  for (const Param& param : records_.params_of(node)) {
    if (param.kind == ParamKind::kNull) {
      const uint64_t null = 0;
      put(block, param, &null);
    } else if (param.kind == ParamKind::kBytes) {
      put(block, param, records_.bytes.data() + param.expr);
    } else if (param.kind == ParamKind::kPointer) {
      const uint64_t address = bases[param.region] + static_cast<uint64_t>(values[param.expr]);
      put(block, param, &address);
    } else {
      const int64_t value = values[param.expr];
      if (param.kind == ParamKind::kI32 && node.kind == NodeKind::kKernel && value > INT32_MAX)
        fail("cannot launch " + std::string(text(records_.kernels[node.target].function)),
             std::to_string(value) + " does not fit its 32-bit parameter at byte " +
                 std::to_string(param.offset));
      put(block, param, &value);
    }
  }
}

int64_t Table::bytes_of(const Tensor& tensor, std::span<const int64_t> values) const {
  int64_t bytes = kItemSizes[tensor.dtype];
  for (const uint32_t dim : records_.lists.subspan(tensor.first_dim, tensor.dims))
    bytes *= values[dim];
  return bytes;
}

}  // namespace vcc::table
