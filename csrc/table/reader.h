// A node table that came from disk: checked when it is made, read only afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "table/records.h"

namespace vcc::table {

// The values of all expressions at these sizes, one a symbol in order. Throws Error of Code::kGraph
// for a size that the table does not declare, and for anything that lies outside its region then.
void evaluate_checked(const Records& records, std::span<const int64_t> sizes,
                      std::vector<int64_t>& values);

class Table {
 public:
  // Takes the bytes of a file; throws Error of Code::kIntegrity for anything that docs/format.md
  // does not allow, naming section, record and reason. Views stay valid when a table is moved.
  explicit Table(std::vector<std::byte> bytes);
  explicit Table(std::span<const std::byte> bytes);  // copies them

  Table(Table&&) = default;
  Table& operator=(Table&&) = default;

  // All sections: what the records refer to is there.
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

  // As evaluate_checked.
  void evaluate(std::span<const int64_t> sizes, std::vector<int64_t>& values) const {
    evaluate_checked(records_, sizes, values);
  }

  // What the values of all expressions never exceed at these sizes or smaller ones.
  void evaluate_most(std::span<const int64_t> sizes, std::vector<int64_t>& values) const;

 private:
  std::vector<std::byte> bytes_;
  Records records_;
  std::vector<uint32_t> by_name_;  // tensors in the order of their names
};

}  // namespace vcc::table
