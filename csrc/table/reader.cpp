#include "table/reader.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "abi/error.h"
#include "table/expr.h"

namespace vcc::table {

namespace {

[[noreturn]] void fail(const std::string& why) {
  throw Error(Code::kGraph, "cannot size the graph", why);
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

void check_sizes(const Records& records, std::span<const int64_t> sizes) {
  const auto symbols = records.symbols;
  const auto n = [](int64_t number) { return std::to_string(number); };
  if (sizes.size() != symbols.size())
    fail(n(sizes.size()) + " sizes are given, it has " + n(symbols.size()));
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] < symbols[i].low || sizes[i] > symbols[i].high)
      fail(std::string(records.text(symbols[i].name)) + " is " + n(sizes[i]) +
           ", the graph is for " + n(symbols[i].low) + " to " + n(symbols[i].high));
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

void Table::evaluate_most(std::span<const int64_t> sizes, std::vector<int64_t>& values) const {
  check_sizes(records_, sizes);
  values.resize(records_.exprs.size());
  table::evaluate_most(records_.exprs, sizes, values.data());
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

void evaluate_checked(const Records& records, std::span<const int64_t> sizes,
                      std::vector<int64_t>& values) {
  check_sizes(records, sizes);
  values.resize(records.exprs.size());
  evaluate(records.exprs, sizes, values.data());
  try {
    check_bounds(records, values);
  } catch (const Error& error) {
    fail(error.why);
  }
}

}  // namespace vcc::table
