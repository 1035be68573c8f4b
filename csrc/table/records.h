// The sections of a table in memory, and what reading one shares.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "table/format.h"

namespace vcc::table {

// Bytes that a parameter writes.
inline uint32_t width_of(const Param& param) {
  if (param.kind == ParamKind::kBytes) return param.size;
  return param.kind == ParamKind::kI32 || param.kind == ParamKind::kF32 ? 4 : 8;
}

// Views into the bytes of one table.
struct Records {
  std::span<const char> strings;
  std::span<const Symbol> symbols;
  std::span<const Expr> exprs;
  std::span<const Region> regions;
  std::span<const uint32_t> lists;
  std::span<const Tensor> tensors;
  std::span<const Cubin> cubins;
  std::span<const Kernel> kernels;
  std::span<const Attribute> attributes;
  std::span<const Node> nodes;
  std::span<const Param> params;
  std::span<const Gemm> gemms;
  std::span<const Variant> variants;
  std::span<const Segment> segments;
  std::span<const Edge> edges;
  std::span<const uint8_t> bytes;

  // Of a table that has passed check_records.
  std::string_view text(StrRef ref) const { return {strings.data() + ref.offset, ref.length}; }
  std::span<const Param> params_of(const Node& node) const {
    return params.subspan(node.first_param, node.params);
  }
};

// Refuse the table, naming section and record: throws Error of Code::kIntegrity.
[[noreturn]] void refuse(SectionKind section, uint64_t index, const std::string& why);
[[noreturn]] void refuse(SectionKind section, const std::string& why);
[[noreturn]] void refuse_header(const std::string& why);

// Before anything is copied or read.
void check_file_size(uint64_t size);

// Header and places of all sections. `bytes` starts at a multiple of 8.
Records read_frame(std::span<const std::byte> bytes);

// Every record of every section; allocates in proportion to the file.
void check_records(const Records& records);

// At given sizes nothing that the table names lies outside its region. `values` are those of all
// expressions. Throws Error of Code::kIntegrity.
void check_bounds(const Records& records, std::span<const int64_t> values);

}  // namespace vcc::table
