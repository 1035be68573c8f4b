#include "player/gemms.h"

#include <algorithm>
#include <cstring>

#include "abi/error.h"

namespace vcc {
namespace {

GemmShape shape_of(const table::Gemm& gemm) { return {gemm.n, gemm.k, gemm.dtype, gemm.flags}; }

bool fits(const table::Variant& variant, const table::Gemm& gemm, int64_t rows) {
  return variant.n == gemm.n && (variant.k == 0 || variant.k == gemm.k) &&
         variant.dtype == gemm.dtype && variant.flags == gemm.flags &&
         (variant.max_rows == 0 || rows <= variant.max_rows);
}

std::string hex_of(const uint8_t (&digest)[32]) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

void Gemms::add(GemmShape shape, int64_t rows, std::shared_ptr<StoredGemm> stored) {
  workspace_ = std::max(workspace_, stored->workspace);
  stored_[shape][rows] = std::move(stored);
}

void Gemms::prefer(GemmShape shape, int64_t rows, GemmRoute route) {
  preferred_[{shape, rows}] = route;
}

GemmChoice Gemms::choose(const table::Gemm& gemm, int64_t rows, int64_t most) const {
  GemmChoice stored, variant;
  if (const auto found = stored_.find(shape_of(gemm)); found != stored_.end()) {
    const auto entry = found->second.lower_bound(rows);
    if (entry != found->second.end() && entry->first <= most) {
      stored = {GemmRoute::kStored, entry->first, entry->second.get(), 0};
    }
  }
  const auto& variants = table_.variants;
  const auto first = std::find_if(variants.begin(), variants.end(),
                                  [&](const auto& one) { return fits(one, gemm, rows); });
  if (first != variants.end()) {
    variant = {GemmRoute::kVariant, rows, nullptr, static_cast<uint32_t>(first - variants.begin())};
  }
  if (stored.route == GemmRoute::kNone) return variant;
  if (variant.route == GemmRoute::kNone) return stored;
  const auto wish = preferred_.find({shape_of(gemm), stored.rows});
  return wish != preferred_.end() && wish->second == GemmRoute::kVariant ? variant : stored;
}

GemmChoice Gemms::must_choose(const table::Gemm& gemm, int64_t rows, int64_t most) const {
  const GemmChoice choice = choose(gemm, rows, most);
  if (choice.route != GemmRoute::kNone) return choice;
  throw Error(Code::kGraph, "nobody computes " + gemm_text(gemm, rows),
              "the GEMM store has no entry for it and the artifact no kernel",
              "fill the store on this GPU: vcc tune MODEL");
}

std::vector<Shape> shapes_of(const table::Records& table, Modules& modules) {
  std::vector<Shape> shapes;
  shapes.reserve(table.kernels.size());
  for (const auto& kernel : table.kernels) {
    Shape shape;
    const std::string digest = hex_of(table.cubins[kernel.cubin].sha256);
    shape.function =
        &modules.function({digest, table.text(kernel.function), kernel.param_bytes, kernel.shared,
                           kernel.carveout, (kernel.flags & table::kNonPortable) != 0});
    shape.block[0] = kernel.block[0];
    shape.block[1] = kernel.block[1];
    shape.block[2] = kernel.block[2];
    shape.shared = kernel.shared;
    for (uint32_t i = 0; i < kernel.attributes; ++i) {
      const auto& record = table.attributes[kernel.first_attribute + i];
      CUlaunchAttribute attribute = {};
      attribute.id = static_cast<CUlaunchAttributeID>(record.id);
      std::memcpy(&attribute.value, record.value, sizeof attribute.value);
      shape.attributes.push_back(attribute);
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

std::string gemm_text(const table::Gemm& gemm, int64_t rows) {
  return "the matrix product of " + std::to_string(rows) + " rows by " + std::to_string(gemm.n) +
         " x " + std::to_string(gemm.k) + ((gemm.flags & table::kAddsC) != 0 ? " plus c" : "");
}

}  // namespace vcc
