// Check nodes with their products, variants and parameters, and how they are put together.
#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "table/check.h"

namespace vcc::table {

namespace {

struct Field {
  ParamKind kind;
  uint8_t access;
  uint32_t offset;

  bool operator==(const Field&) const = default;
};

constexpr Field kGemmFields[] = {{ParamKind::kPointer, kRead, 0},
                                 {ParamKind::kPointer, kRead, 8},
                                 {ParamKind::kPointer, kRead, 16},
                                 {ParamKind::kPointer, kWrite, 24}};
constexpr Field kPlainGemmFields[] = {{ParamKind::kPointer, kRead, 0},
                                      {ParamKind::kPointer, kRead, 8},
                                      {ParamKind::kPointer, kWrite, 24}};
constexpr Field kScaledFields[] = {
    {ParamKind::kPointer, kRead, 0},  {ParamKind::kPointer, kRead, 8},
    {ParamKind::kPointer, kRead, 16}, {ParamKind::kPointer, kWrite, 24},
    {ParamKind::kPointer, kRead, 32}, {ParamKind::kPointer, kRead, 40}};
constexpr Field kPlainScaledFields[] = {{ParamKind::kPointer, kRead, 0},
                                        {ParamKind::kPointer, kRead, 8},
                                        {ParamKind::kPointer, kWrite, 24},
                                        {ParamKind::kPointer, kRead, 32},
                                        {ParamKind::kPointer, kRead, 40}};
constexpr Field kMemsetFields[] = {{ParamKind::kPointer, kWrite, 0}, {ParamKind::kI32, 0, 8},
                                   {ParamKind::kI32, 0, 12},         {ParamKind::kI64, 0, 16},
                                   {ParamKind::kI64, 0, 24},         {ParamKind::kI64, 0, 32}};
constexpr Field kMemcpyFields[] = {
    {ParamKind::kPointer, kWrite, 0}, {ParamKind::kPointer, kRead, 8}, {ParamKind::kI64, 0, 16}};

std::span<const Field> gemm_fields(const Gemm& gemm) {
  const bool adds = (gemm.flags & kAddsC) != 0;
  if (gemm.scales == Scales::kNone) {
    return adds ? std::span<const Field>(kGemmFields) : kPlainGemmFields;
  }
  return adds ? std::span<const Field>(kScaledFields) : kPlainScaledFields;
}

// Of a gemm or a variant: what it multiplies, or fp8 values with scales into a wider type.
template <class Record>
bool has_types(const Record& record) {
  if (record.dtype >= kDtypes || record.flags > kAddsC || record.scales > Scales::kMixed)
    return false;
  if (record.scales == Scales::kNone) return record.out == 0;
  return record.dtype == kFloat8E4m3 && kFloat32 <= record.out && record.out <= kBfloat16;
}

std::span<const Field> fields_of(const Records& records, const Node& node) {
  switch (node.kind) {
    case NodeKind::kGemm:
      return gemm_fields(records.gemms[node.target]);
    case NodeKind::kMemset:
      return kMemsetFields;
    case NodeKind::kMemcpy:
      return kMemcpyFields;
    default:
      return {};
  }
}

}  // namespace

void Checker::gemm(uint64_t index) {
  const Gemm& gemm = r_.gemms[index];
  const Need need(SectionKind::kGemms, index);
  need(ranges_.usable(gemm.m), "its rows are no expression");
  need(gemm.n >= 1 && gemm.k >= 1, "it has no columns, or sums nothing");
  need(has_types(gemm), "unknown dtype or flags");
}

bool Checker::has_target(const Node& node) const {
  if (node.kind == NodeKind::kKernel) return node.target < r_.kernels.size();
  if (node.kind == NodeKind::kGemm) return node.target < r_.gemms.size();
  return node.target == kNone;
}

bool Checker::has_grid(const Node& node) const {
  const bool kernel = node.kind == NodeKind::kKernel;
  return std::all_of(std::begin(node.grid), std::end(node.grid),
                     [&](uint32_t size) { return kernel ? ranges_.usable(size) : size == kNone; });
}

bool Checker::has_fixed_params(const Node& node) const {
  const auto params = r_.params_of(node);
  const auto fields = fields_of(r_, node);
  return std::equal(params.begin(), params.end(), fields.begin(), fields.end(),
                    [](const Param& param, const Field& field) {
                      return Field{param.kind, param.access, param.offset} == field;
                    });
}

void Checker::node(uint64_t index) {
  const Node& node = r_.nodes[index];
  const Need need(SectionKind::kNodes, index);
  need(node.kind <= NodeKind::kEmpty && node.when <= When::kAdapted && node.zero == 0,
       "unknown kind or when");
  need(has_target(node), "no such target");
  need(has_grid(node), "no such grid");
  const bool follows = params_.follows(node.first_param, node.params);
  need(follows && node.params <= kMostParams, "its parameters are not the next ones, or too many");
  need(uint64_t{node.first_param} + node.params <= r_.params.size(),
       "more parameters than there are");
  const bool kernel = node.kind == NodeKind::kKernel;
  const uint32_t block = kernel                         ? r_.kernels[node.target].param_bytes
                         : node.kind == NodeKind::kGemm ? kGemmBlock
                                                        : kFixedBlock;
  for (uint64_t i = 0; i < node.params; ++i) param(node.first_param + i, block);
  if (kernel) return;
  need(has_fixed_params(node), "not its parameters");
  if (node.kind != NodeKind::kMemset) return;
  const Expr* item = constant(r_.params_of(node)[2].expr);
  need(item && (item->b == 1 || item->b == 2 || item->b == 4), "no such element size");
}

bool Checker::has_value(const Param& param) {
  switch (param.kind) {
    case ParamKind::kNull:
      return param.expr == kNone;
    case ParamKind::kBytes:
      return bytes_.follows(param.expr, param.size);
    case ParamKind::kF32: {
      const Expr* bits = constant(param.expr);
      return bits && 0 <= bits->b && bits->b <= UINT32_MAX;
    }
    case ParamKind::kF64:
      return constant(param.expr) != nullptr;
    default:
      return ranges_.usable(param.expr);
  }
}

void Checker::param(uint64_t index, uint32_t block) {
  const Param& param = r_.params[index];
  const Need need(SectionKind::kParams, index);
  need(param.kind <= ParamKind::kF64 && param.zero == 0 && param.last == 0, "unknown kind");
  const bool pointer = param.kind == ParamKind::kPointer, bytes = param.kind == ParamKind::kBytes;
  need(pointer ? 1 <= param.access && param.access <= (kRead | kWrite) : param.access == 0,
       "unknown access");
  need(pointer ? param.region < r_.regions.size() : param.region == kNone, "no such region");
  need(bytes ? param.size >= 1 : param.size == 0, "no such size");
  need(uint64_t{param.offset} + width_of(param) <= block, "outside the parameter block");
  need(has_value(param), "no such value");
}

bool Checker::launches(uint32_t kernel, uint32_t block) const {
  return kernel < r_.kernels.size() && r_.kernels[kernel].param_bytes == block;
}

void Checker::variant(uint64_t index) {
  const Variant& variant = r_.variants[index];
  const Need need(SectionKind::kVariants, index);
  need(has_types(variant), "unknown dtype or flags");
  need(variant.n && variant.tile_rows && variant.tile_n && variant.split_k, "a size is zero");
  need(launches(variant.kernel, kVariantBlock), "no such kernel, or other parameters");
  need(variant.split_k == 1 || variant.scales == Scales::kNone, "splits a scaled product");
  // Of blocks of scales it spreads them, where there is one.
  const bool open = variant.split_k == 1 && variant.reduce_kernel == kNone;
  const bool works = variant.split_k > 1 || variant.scales == Scales::kBlocks;
  need(open || (works && launches(variant.reduce_kernel, kReduceBlock)),
       "no such second kernel, or other parameters, or nothing to reduce or spread");
}

void Checker::segment(uint64_t index) {
  const Segment& segment = r_.segments[index];
  const Need need(SectionKind::kSegments, index);
  const auto* zero = segment.zero;
  need(segment.kind <= SegmentKind::kSample && !zero[0] && !zero[1] && !zero[2], "unknown kind");
  need(is_text(segment.name), "its name is no text");
  need(nodes_.follows(segment.first_node, segment.nodes), "its nodes are not the next ones");
  need(segment.kind != SegmentKind::kAdvance || segment.first_node == 0,
       "advances after other nodes");
  const bool last = uint64_t{segment.first_node} + segment.nodes == r_.nodes.size();
  need(segment.kind != SegmentKind::kSample || last, "samples before other nodes");
}

void Checker::edge(uint64_t index) {
  const Edge& edge = r_.edges[index];
  const Need need(SectionKind::kEdges, index);
  need(edge.from < edge.to && edge.to < r_.nodes.size(), "does not lead to a later node");
  need(edge.type <= 1 && edge.from_port <= 2 && edge.to_port <= 2 && edge.zero == 0,
       "unknown type or port");
  need(r_.nodes[edge.from].when == When::kAlways && r_.nodes[edge.to].when == When::kAlways,
       "joins a node that may be left out");
  if (index == 0) return;
  const Edge& before = r_.edges[index - 1];
  need(std::pair(before.from, before.to) < std::pair(edge.from, edge.to), "not in ascending order");
}

}  // namespace vcc::table
