// Check the records of a table, section by section: expressions, memory, kernels.
#include "table/check.h"

#include <algorithm>

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
