// What the checks of a table's records share.
#pragma once

#include <string_view>
#include <unordered_set>
#include <vector>

#include "table/records.h"

namespace vcc::table {

// Refuses one record, with this reason, unless a condition holds.
class Need {
 public:
  Need(SectionKind section, uint64_t index) : section_(section), index_(index) {}
  void operator()(bool holds, const char* why) const {
    if (!holds) refuse(section_, index_, why);
  }

 private:
  SectionKind section_;
  uint64_t index_;
};

// The least and the largest value of every expression over all sizes that the symbols declare. A
// negative constant stands for the bits of a double: it is no operand, size or offset.
class Ranges {
 public:
  // Checks every expression: its grammar, its length, and that it stays within 63 bits.
  void check(const Records& records);

  bool usable(uint32_t index) const { return index < low_.size() && low_[index] >= 0; }
  bool fixed(uint32_t index) const { return low_[index] == high_[index]; }

 private:
  void check_one(const Records& records, uint64_t index);

  std::vector<int64_t> low_;
  std::vector<int64_t> high_;
  std::vector<uint32_t> terms_;
};

// Records that belong to another record follow one another without gap or overlap.
class Owned {
 public:
  bool follows(uint64_t first, uint64_t count) {
    const bool right = first == end_;
    end_ += count;
    return right;
  }
  void check_all(SectionKind section, uint64_t count) const;

 private:
  uint64_t end_ = 0;
};

// A table under check, in the order of engine/graphs/table/check.py.
class Checker {
 public:
  explicit Checker(const Records& records) : r_(records) {}
  void run();

 private:
  using Names = std::unordered_set<std::string_view>;

  void symbol(uint64_t index);
  void region(uint64_t index);
  void tensor(uint64_t index);
  void cubin(uint64_t index);
  void kernel(uint64_t index);
  void attribute(uint64_t index);
  void gemm(uint64_t index);
  void node(uint64_t index);
  void param(uint64_t index, uint32_t block);
  void variant(uint64_t index);
  void segment(uint64_t index);
  void edge(uint64_t index);

  bool is_text(StrRef ref) const;
  bool is_fresh_name(StrRef ref, Names& names) const;
  bool is_static(const Tensor& tensor) const;
  bool has_target(const Node& node) const;
  bool has_grid(const Node& node) const;
  bool has_fixed_params(const Node& node) const;
  bool has_value(const Param& param);
  bool launches(uint32_t kernel, uint32_t block) const;
  const Expr* constant(uint32_t index) const;

  const Records& r_;
  Ranges ranges_;
  Names symbols_, tensors_, cubins_;
  std::unordered_set<uint64_t> regions_;
  Owned lists_, attributes_, params_, nodes_, bytes_;
};

}  // namespace vcc::table
