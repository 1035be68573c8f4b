// Check the records of a table, section by section.
#include "table/check.h"

#include <algorithm>
#include <array>

namespace vcc::table {

namespace {

// Strict UTF-8 (no overlong forms, no surrogates) without control characters.
bool valid_text(std::string_view text) {
  const auto* at = reinterpret_cast<const uint8_t*>(text.data());
  const auto* const end = at + text.size();
  while (at < end) {
    const uint8_t lead = *at++;
    if (lead < 0x20 || lead == 0x7F) return false;
    if (lead < 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4) return false;
    const int more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (end - at < more) return false;
    const uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (*at < least || *at > most) return false;
    for (int i = 1; i < more; ++i)
      if ((at[i] & 0xC0) != 0x80) return false;
    at += more;
  }
  return true;
}

bool divides(Op op) { return op == Op::kFloorDiv || op == Op::kMod || op == Op::kCeilDiv; }

// False on overflow.
bool most_of(Op op, int64_t a, int64_t b, int64_t& most) {
  if (op == Op::kAdd) return !__builtin_add_overflow(a, b, &most);
  if (op == Op::kMul) return !__builtin_mul_overflow(a, b, &most);
  most = op == Op::kMod        ? std::min(a, b - 1)
         : op == Op::kMin      ? std::min(a, b)
         : op == Op::kMax      ? std::max(a, b)
         : op == Op::kFloorDiv ? a / b
                               : a / b + (a % b != 0);
  return true;
}

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

// The only region where tensors of a role may lie; others may lie anywhere.
bool at_home(Role role, RegionKind kind) {
  if (role == Role::kWeight || role == Role::kConstant) return kind == RegionKind::kWeights;
  return role != Role::kCache || kind == RegionKind::kKvCache;
}

uint32_t indices_of(RegionKind kind) {
  if (kind == RegionKind::kPeer) return kPeers;
  return kind == RegionKind::kOperand ? kOperands : 1;
}

}  // namespace

void Ranges::check(const Records& records) {
  const auto count = records.exprs.size();
  low_.reserve(count), high_.reserve(count), terms_.reserve(count);
  for (uint64_t index = 0; index < count; ++index) check_one(records, index);
}

void Ranges::check_one(const Records& records, uint64_t index) {
  const Expr& expr = records.exprs[index];
  const Need need(SectionKind::kExprs, index);
  if (expr.zero[0] || expr.zero[1] || expr.zero[2] || expr.op > Op::kCeilDiv)
    refuse(SectionKind::kExprs, index,
           "unknown operation " + std::to_string(static_cast<int>(expr.op)) +
               ", or a field that must be zero");
  if (expr.op <= Op::kSymbol) {
    const bool literal = expr.op == Op::kConst;
    need(literal ? expr.a == 0 : expr.a < records.symbols.size() && expr.b == 0,
         "names no symbol, or a field that must be zero is not");
    low_.push_back(literal ? expr.b : records.symbols[expr.a].low);
    high_.push_back(literal ? expr.b : records.symbols[expr.a].high);
    terms_.push_back(1);
    return;
  }
  need(expr.a < index && expr.b >= 0 && static_cast<uint64_t>(expr.b) < index,
       "an operand does not come before it");
  const auto a = expr.a, b = static_cast<uint32_t>(expr.b);
  need(low_[a] >= 0 && low_[b] >= 0, "an operand is negative");
  need(!divides(expr.op) || (records.exprs[b].op == Op::kConst && low_[b] >= 1),
       "divides by something other than a positive constant");
  int64_t low = 0, high = 0;
  const bool fits = most_of(expr.op, high_[a], high_[b], high);
  const uint32_t terms = 1 + terms_[a] + terms_[b];
  need(fits && terms <= kMostTerms, "beyond 63 bits, or more than 1024 terms");
  if (expr.op != Op::kMod) most_of(expr.op, low_[a], low_[b], low);
  low_.push_back(low), high_.push_back(high), terms_.push_back(terms);
}

void Owned::check_all(SectionKind section, uint64_t count) const {
  if (end_ != count)
    refuse(section, std::to_string(count) + " records, " + std::to_string(end_) + " are used");
}

bool Checker::is_text(StrRef ref) const {
  return ref.length <= kMostName && uint64_t{ref.offset} + ref.length <= r_.strings.size() &&
         valid_text(r_.text(ref));
}

bool Checker::is_fresh_name(StrRef ref, Names& names) const {
  return is_text(ref) && ref.length > 0 && names.insert(r_.text(ref)).second;
}

const Expr* Checker::constant(uint32_t index) const {
  const bool literal = index < r_.exprs.size() && r_.exprs[index].op == Op::kConst;
  return literal ? &r_.exprs[index] : nullptr;
}

void Checker::symbol(uint64_t index) {
  const Symbol& symbol = r_.symbols[index];
  const Need need(SectionKind::kSymbols, index);
  need(is_fresh_name(symbol.name, symbols_), "no name of its own");
  need(0 <= symbol.low && symbol.low <= symbol.high && symbol.high <= kMostSymbol,
       "empty range, or beyond 53 bits");
}

void Checker::region(uint64_t index) {
  const Region& region = r_.regions[index];
  const Need need(SectionKind::kRegions, index);
  need(region.kind <= RegionKind::kOperand, "unknown kind");
  need(region.index < indices_of(region.kind), "no such index");
  const auto key = static_cast<uint64_t>(region.kind) << 32 | region.index;
  need(regions_.insert(key).second, "the same region again");
  need(ranges_.usable(region.size), "its size is no expression");
  need(std::has_single_bit(region.alignment) && region.alignment <= kMostRegionAlignment,
       "its alignment is no power of two in range");
}

bool Checker::is_static(const Tensor& tensor) const {
  if (!ranges_.fixed(tensor.offset)) return false;
  if (uint64_t{tensor.first_dim} + tensor.dims > r_.lists.size()) return true;  // refused later
  const auto dims = r_.lists.subspan(tensor.first_dim, tensor.dims);
  return std::all_of(dims.begin(), dims.end(), [&](uint32_t dim) { return ranges_.fixed(dim); });
}

void Checker::tensor(uint64_t index) {
  const Tensor& tensor = r_.tensors[index];
  const Need need(SectionKind::kTensors, index);
  need(is_fresh_name(tensor.name, tensors_), "no name of its own");
  need(is_text(tensor.target), "its target is no text");
  need(tensor.role <= Role::kState && tensor.dtype < kDtypes && tensor.zero == 0,
       "unknown role or dtype");
  need(tensor.region < r_.regions.size(), "no such region");
  need(ranges_.usable(tensor.offset), "its offset is no expression");
  const bool follows = lists_.follows(tensor.first_dim, tensor.dims);
  need(follows && tensor.dims <= kMostDims, "its dimensions are not the next ones, or too many");
  need(at_home(tensor.role, r_.regions[tensor.region].kind), "it may not lie in this region");
  const bool is_fixed = tensor.role == Role::kWeight || tensor.role == Role::kConstant;
  need(!is_fixed || is_static(tensor), "its place depends on sizes");
}

void Checker::cubin(uint64_t index) {
  const Cubin& cubin = r_.cubins[index];
  const Need need(SectionKind::kCubins, index);
  const std::string_view digest(reinterpret_cast<const char*>(cubin.sha256), sizeof cubin.sha256);
  need(cubins_.insert(digest).second, "the same cubin again");
  need(1 <= cubin.size && cubin.size <= kMostCubin, "no size that a cubin can have");
}

void Checker::kernel(uint64_t index) {
  const Kernel& kernel = r_.kernels[index];
  const Need need(SectionKind::kKernels, index);
  need(kernel.cubin < r_.cubins.size(), "no such cubin");
  need(is_text(kernel.function) && kernel.function.length > 0, "its function has no name");
  using Wide = unsigned __int128;
  const Wide threads = Wide{kernel.block[0]} * kernel.block[1] * kernel.block[2];
  need(1 <= threads && threads <= kMostThreads, "no block of threads");
  need(kernel.shared <= kMostShared && kernel.param_bytes <= kMostParamBytes,
       "too much shared memory or parameters");
  const bool follows = attributes_.follows(kernel.first_attribute, kernel.attributes);
  need(follows && kernel.attributes <= kMostAttributes,
       "its attributes are not the next ones, or too many");
  need(-1 <= kernel.carveout && kernel.carveout <= 100 && kernel.flags <= kNonPortable,
       "unknown carve-out or flags");
}

void Checker::attribute(uint64_t index) {
  const Attribute& attribute = r_.attributes[index];
  Need(SectionKind::kAttributes, index)(
      1 <= attribute.id && attribute.id <= kMostAttributeId && attribute.zero == 0,
      "unknown attribute");
}

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
  need(variant.split_k == 1 ? variant.reduce_kernel == kNone
                            : launches(variant.reduce_kernel, kReduceBlock),
       "no such reducing kernel, or other parameters, or nothing to reduce");
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

void Checker::run() {
  const auto all = [&](uint64_t count, void (Checker::*rule)(uint64_t)) {
    for (uint64_t index = 0; index < count; ++index) (this->*rule)(index);
  };
  all(r_.symbols.size(), &Checker::symbol);
  ranges_.check(r_);
  all(r_.regions.size(), &Checker::region);
  for (uint64_t index = 0; index < r_.lists.size(); ++index)
    Need(SectionKind::kLists, index)(ranges_.usable(r_.lists[index]), "no expression");
  all(r_.tensors.size(), &Checker::tensor);
  all(r_.cubins.size(), &Checker::cubin);
  all(r_.kernels.size(), &Checker::kernel);
  all(r_.attributes.size(), &Checker::attribute);
  all(r_.gemms.size(), &Checker::gemm);
  all(r_.nodes.size(), &Checker::node);
  all(r_.variants.size(), &Checker::variant);
  all(r_.segments.size(), &Checker::segment);
  all(r_.edges.size(), &Checker::edge);
  lists_.check_all(SectionKind::kLists, r_.lists.size());
  attributes_.check_all(SectionKind::kAttributes, r_.attributes.size());
  nodes_.check_all(SectionKind::kNodes, r_.nodes.size());
  params_.check_all(SectionKind::kParams, r_.params.size());
  bytes_.check_all(SectionKind::kBytes, r_.bytes.size());
}

void check_records(const Records& records) { Checker(records).run(); }

}  // namespace vcc::table
