#include "player/gemms.h"

#include <algorithm>
#include <cstring>

#include "abi/error.h"
#include "player/alignment.h"

namespace vcc {
namespace {

template <class T>
T multiple_of(T size, uint32_t unit) {
  return (size + unit - 1) / unit * unit;
}

bool fits(const table::Variant& variant, const table::Gemm& gemm, int64_t rows) {
  return variant.n == gemm.n && (variant.k == 0 || variant.k == gemm.k) &&
         variant.dtype == gemm.dtype && variant.flags == gemm.flags && variant.out == gemm.out &&
         variant.scales == gemm.scales && (variant.max_rows == 0 || rows <= variant.max_rows);
}

}  // namespace

Gemms::Gemms(const table::Records& table) : table_(table), alignments_(alignments_of(table)) {}

bool Gemms::storable(const GemmShape& shape) const {
  const auto found = alignments_.find(shape);
  const bool aligned = found == alignments_.end() || found->second % table::kStoredAlignment == 0;
  const bool blocks = shape.scales == table::Scales::kBlocks;
  return aligned && (!blocks || spreading_kernel(table_, shape) != table::kNone);
}

GemmShape shape_of(const table::Gemm& gemm) {
  return {gemm.n, gemm.k, gemm.dtype, gemm.flags, gemm.out, gemm.scales};
}

uint32_t spreading_kernel(const table::Records& table, const GemmShape& shape) {
  if (shape.scales != table::Scales::kBlocks) return table::kNone;
  const table::Gemm gemm{0, shape.n, shape.k, shape.dtype, shape.flags, shape.out, shape.scales};
  for (const auto& one : table.variants) {
    if (fits(one, gemm, 0) && one.reduce_kernel != table::kNone) return one.reduce_kernel;
  }
  return table::kNone;
}

Spread::Spread(const GemmShape& shape, int64_t rows, uint64_t workspace)
    : across(multiple_of(int64_t{shape.k}, table::kScaleBlock) / table::kScaleBlock),
      down(multiple_of(int64_t{shape.n}, table::kScaleBlock) / table::kScaleBlock),
      pitch(multiple_of(across, table::kStoredScaleColumns)),
      of_w(pitch != across),
      a_at(multiple_of(workspace, table::kStoredAlignment)),
      a_bytes(static_cast<uint64_t>(across * rows) * sizeof(float)),
      w_at(multiple_of(a_at + a_bytes, table::kStoredAlignment)),
      w_bytes(static_cast<uint64_t>(down * pitch) * sizeof(float)) {}

uint64_t scratch_of(const GemmOffer& offer) {
  if (offer.shape.scales != table::Scales::kBlocks) return offer.workspace;
  return Spread(offer.shape, offer.rows, offer.workspace).scratch();
}

std::vector<bool> Gemms::offer(std::span<const GemmOffer> offers) {
  const std::lock_guard lock(lock_);
  VCC_EXPECT(!finished_, "entries are offered before all have come");
  std::vector<bool> needed;
  for (const GemmOffer& one : offers) {
    const auto index = static_cast<uint32_t>(offers_.size());
    offers_.push_back(one);
    buckets_[one.shape][one.rows] = {index, one.route, nullptr};
    const table::Gemm exact{0,
                            one.shape.n,
                            one.shape.k,
                            one.shape.dtype,
                            one.shape.flags,
                            one.shape.out,
                            one.shape.scales};
    const bool stored = choose_locked(exact, one.rows, one.rows).route == GemmRoute::kStored;
    if (stored) workspace_ = std::max(workspace_, scratch_of(one));
    needed.push_back(stored);
  }
  return needed;
}

void Gemms::add(uint32_t offer, std::shared_ptr<StoredGemm> stored) {
  const std::lock_guard lock(lock_);
  Bucket* bucket = bucket_of(offer);
  if (bucket == nullptr || bucket->stored != nullptr || finished_) return;
  bucket->stored = std::move(stored);
  changed_.notify_all();
}

void Gemms::withdraw(uint32_t offer) {
  const std::lock_guard lock(lock_);
  const Bucket* bucket = bucket_of(offer);
  if (bucket == nullptr || bucket->stored != nullptr) return;
  buckets_[offers_[offer].shape].erase(offers_[offer].rows);
  changed_.notify_all();
}

void Gemms::finish() {
  const std::lock_guard lock(lock_);
  finished_ = true;
  changed_.notify_all();
}

GemmOffer Gemms::offered(uint32_t offer) const {
  const std::lock_guard lock(lock_);
  VCC_EXPECT(offer < offers_.size(), "an offer of the GEMM store");
  return offers_[offer];
}

Gemms::Bucket* Gemms::bucket_of(uint32_t offer) {
  if (offer >= offers_.size()) return nullptr;
  const GemmOffer& one = offers_[offer];
  const auto found = buckets_[one.shape].find(one.rows);
  const bool same = found != buckets_[one.shape].end() && found->second.offer == offer;
  return same ? &found->second : nullptr;
}

GemmChoice Gemms::choose(const table::Gemm& gemm, int64_t rows, int64_t most) const {
  const std::lock_guard lock(lock_);
  return choose_locked(gemm, rows, most);
}

GemmChoice Gemms::choose_locked(const table::Gemm& gemm, int64_t rows, int64_t most) const {
  GemmChoice variant;
  const auto& variants = table_.variants;
  const auto first = std::find_if(variants.begin(), variants.end(),
                                  [&](const auto& one) { return fits(one, gemm, rows); });
  if (first != variants.end()) {
    variant = {GemmRoute::kVariant, rows, nullptr, static_cast<uint32_t>(first - variants.begin())};
  }
  const auto found = buckets_.find(shape_of(gemm));
  if (found == buckets_.end() || !storable(found->first)) return variant;
  for (auto at = found->second.lower_bound(rows); at != found->second.end() && at->first <= most;
       ++at) {
    const Bucket& bucket = at->second;
    if (bucket.route == GemmRoute::kVariant && variant.route == GemmRoute::kVariant) return variant;
    if (bucket.stored != nullptr || !finished_) {
      return {GemmRoute::kStored, at->first, bucket.stored.get(), 0};
    }
  }
  return variant;
}

GemmChoice Gemms::must_choose(const table::Gemm& gemm, int64_t rows, int64_t most) const {
  std::unique_lock lock(lock_);
  GemmChoice choice;
  changed_.wait(lock, [&] {
    choice = choose_locked(gemm, rows, most);
    return choice.route != GemmRoute::kStored || choice.stored != nullptr;
  });
  if (choice.route != GemmRoute::kNone) return choice;
  throw Error(Code::kGraph, "nobody computes " + gemm_text(gemm, rows),
              "the GEMM store has no entry for it and the artifact no kernel",
              "fill the store on this GPU: vcc tune MODEL");
}

uint32_t Gemms::offer_of(const table::Gemm& gemm, const GemmChoice& choice) const {
  if (choice.route != GemmRoute::kStored) return kNoOffer;
  const std::lock_guard lock(lock_);
  const auto found = buckets_.find(shape_of(gemm));
  if (found == buckets_.end()) return kNoOffer;
  const auto at = found->second.find(choice.rows);
  return at == found->second.end() ? kNoOffer : at->second.offer;
}

uint64_t Gemms::workspace() const {
  const std::lock_guard lock(lock_);
  return workspace_;
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

std::string hex_of(const uint8_t (&digest)[32]) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

const char* scales_text(table::Scales scales) {
  constexpr const char* kNames[] = {"", "tensor", "rows", "blocks", "mixed"};
  return kNames[static_cast<uint32_t>(scales)];
}

std::string gemm_text(const table::Gemm& gemm, int64_t rows) {
  const std::string scales = scales_text(gemm.scales);
  return "the matrix product of " + std::to_string(rows) + " rows by " + std::to_string(gemm.n) +
         " x " + std::to_string(gemm.k) + (scales.empty() ? "" : " of fp8, scales: " + scales) +
         ((gemm.flags & table::kAddsC) != 0 ? " plus c" : "");
}

}  // namespace vcc
