// A node table that came from disk: checked when it is made, read only afterwards.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "table/records.h"

namespace vcc::table {

class Table {
 public:
  // Takes the bytes of a file; throws Error of Code::kIntegrity for anything that docs/format.md
  // does not allow, naming section, record and reason. Views stay valid when a table is moved.
  explicit Table(std::vector<std::byte> bytes);
  explicit Table(std::span<const std::byte> bytes);  // copies them

  Table(Table&&) = default;
  Table& operator=(Table&&) = default;

  // All sections; `records().text(ref)` and `records().params_of(node)` need no further check.
  const Records& records() const { return records_; }

  std::span<const Symbol> symbols() const { return records_.symbols; }
  std::span<const Region> regions() const { return records_.regions; }
  std::span<const Tensor> tensors() const { return records_.tensors; }
  std::span<const Kernel> kernels() const { return records_.kernels; }
  std::span<const Node> nodes() const { return records_.nodes; }
  std::span<const Segment> segments() const { return records_.segments; }
  std::string_view text(StrRef ref) const { return records_.text(ref); }

  // By name, or null.
  const Tensor* find_tensor(std::string_view name) const;
  std::optional<uint32_t> find_symbol(std::string_view name) const;
  std::optional<uint32_t> find_region(RegionKind kind, uint32_t index = 0) const;

  // The values of all expressions at these sizes, one a symbol in order. Throws Error of
  // Code::kGraph for a size that the table does not declare, and for anything that would lie
  // outside its region at these sizes. About 10 us for a table of 1,000 nodes.
  void evaluate(std::span<const int64_t> sizes, std::vector<int64_t>& values) const;

  // The grid of a kernel node, within the limits of devices; Error of Code::kGraph beyond them.
  std::array<uint32_t, 3> grid(const Node& node, std::span<const int64_t> values) const;

  // Bytes of the block that `fill` writes: of a kernel its parameters, of other nodes 40.
  uint32_t block_bytes(const Node& node) const;

  // The parameters of a node: zeros, then each parameter in order. `bases` are the addresses of
  // all regions, `block` has block_bytes(node). Error of Code::kGraph when a 32-bit number of a
  // kernel is above 2^31-1.
  void fill(const Node& node, std::span<const int64_t> values, std::span<const uint64_t> bases,
            std::span<std::byte> block) const;

  // Bytes of a tensor at the sizes of `values`.
  int64_t bytes_of(const Tensor& tensor, std::span<const int64_t> values) const;

 private:
  void check_sizes(std::span<const int64_t> sizes) const;

  std::vector<std::byte> bytes_;
  Records records_;
  std::vector<uint32_t> by_name_;  // tensors in the order of their names
};

// Whether a node runs in a step; `uniform`: a pure decode step, one token a sequence.
inline bool runs(const Node& node, bool uniform) {
  return node.when == When::kAlways || (node.when == When::kUniform) == uniform;
}

}  // namespace vcc::table
