#include "player/alignment.h"

#include <numeric>
#include <vector>

namespace vcc {
namespace {

using table::Expr;
using table::Op;

constexpr uint64_t kAny = 0;                             // divides as zero is divided: by all
constexpr uint64_t kMost = table::kMostRegionAlignment;  // a power of two: more is not asked
static_assert((kMost & (kMost - 1)) == 0 && kMost < (uint64_t{1} << 32));

// As far as kMost: products of two stay within 64 bits.
uint64_t limited(uint64_t divisor) { return divisor == kAny ? kAny : std::gcd(divisor, kMost); }

uint64_t combined(Op op, uint64_t a, uint64_t b) {
  switch (op) {
    case Op::kAdd:
    case Op::kMin:
    case Op::kMax:
      return std::gcd(a, b);
    case Op::kMul:
      return limited(a * b);
    default:
      return 1;
  }
}

// A number for each expression that divides its values at all sizes.
std::vector<uint64_t> divisors_of(const table::Records& table) {
  std::vector<uint64_t> found;
  found.reserve(table.exprs.size());
  for (const Expr& expr : table.exprs) {
    if (expr.op == Op::kConst) {
      found.push_back(limited(static_cast<uint64_t>(expr.b)));
    } else if (expr.op == Op::kSymbol) {
      found.push_back(1);
    } else {
      found.push_back(combined(expr.op, found[expr.a], found[expr.b]));
    }
  }
  return found;
}

}  // namespace

std::map<GemmShape, uint64_t> alignments_of(const table::Records& table) {
  const std::vector<uint64_t> divisors = divisors_of(table);
  std::map<GemmShape, uint64_t> found;
  for (const auto& node : table.nodes) {
    if (node.kind != table::NodeKind::kGemm) continue;
    uint64_t& least = found.try_emplace(shape_of(table.gemms[node.target]), kAny).first->second;
    for (const auto& param : table.params_of(node)) {
      least = std::gcd(
          least, std::gcd(uint64_t{table.regions[param.region].alignment}, divisors[param.expr]));
    }
  }
  return found;
}

}  // namespace vcc
