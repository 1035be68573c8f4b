// Entries of the GEMM store on their way into a player: offered before memory is placed, in the
// order in which graphs need them, beside whatever else a boot does.
#include <algorithm>
#include <chrono>
#include <set>

#include "abi/error.h"
#include "player/player.h"
#include "recorder/json.h"

namespace vcc {
namespace {

using Clock = std::chrono::steady_clock;
using recorder::Json;

[[noreturn]] void refuse_entry(const std::string& why) {
  throw Error(Code::kIntegrity, "an entry of the GEMM store is refused", why);
}

// Why a piece of work failed, or empty: steps need nothing of the store, so nothing of it ends one.
template <class Work>
std::string reason(Work&& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return error.task + ": " + error.why;
  } catch (const std::exception& error) {
    return error.what();
  }
}

void write_kernel(Json& json, const table::Records& records, uint32_t index) {
  const auto& kernel = records.kernels[index];
  json.open('[').text(hex_of(records.cubins[kernel.cubin].sha256));
  json.text(records.text(kernel.function)).open('[');
  for (const uint32_t size : kernel.block) json.number(size);
  json.close(']').number(kernel.shared).close(']');
}

void write_variant(Json& json, const table::Records& records, const table::Variant& variant) {
  json.open('[');
  for (const uint32_t number :
       {variant.n, variant.k, uint32_t{variant.dtype}, uint32_t{variant.flags},
        uint32_t{variant.out}, static_cast<uint32_t>(variant.scales), variant.max_rows,
        variant.tile_rows, variant.tile_n, variant.split_k}) {
    json.number(number);
  }
  json.open('[');
  for (const uint32_t kernel : {variant.kernel, variant.reduce_kernel}) {
    if (kernel != table::kNone) write_kernel(json, records, kernel);
  }
  json.close(']').close(']');
}

}  // namespace

std::string Player::products() const {
  const Expander expander(table_, shapes_, places_, gemms_, least_blocks());
  const auto& records = table_.records();
  Json json;
  json.open('{').name("gemms").open('[');
  for (const auto& gemm : records.gemms) {
    json.open('[').number(gemm.n).number(gemm.k).number(gemm.dtype).number(gemm.flags);
    json.number(gemm.out).number(static_cast<uint32_t>(gemm.scales));
    json.number_signed(expander.largest()[gemm.m]).close(']');
  }
  json.close(']').name("variants").open('[');
  for (const auto& variant : records.variants) write_variant(json, records, variant);
  return json.close(']').close('}').take();
}

std::vector<bool> Player::offer_gemms(std::span<const GemmOffer> offers) {
  const std::lock_guard lock(offering_);
  expect_offers();
  if (first_ == nullptr) return gemms_.offer(offers);
  const std::lock_guard first_lock(first_->offering_);
  first_->expect_offers();
  const std::vector<bool> needed = gemms_.offer(offers);
  first_->beside_workspace_ = std::max(first_->beside_workspace_, gemms_.workspace());
  return needed;
}

void Player::expect_offers() const {
  VCC_EXPECT(!offers_end_, "products are offered before the memory is placed");
}

void Player::end_offers(bool end) {
  const std::lock_guard lock(offering_);
  offers_end_ = end;
}

std::vector<uint32_t> Player::gemm_order(std::span<const Descriptor> descriptors) const {
  const Expander expander(table_, shapes_, places_, gemms_, least_blocks());
  std::vector<uint32_t> order;
  std::set<uint32_t> seen;
  for (const Descriptor& one : descriptors) {
    const auto values = expander.values(one.step);
    for (const auto& gemm : table_.records().gemms) {
      const GemmChoice choice = gemms_.choose(gemm, values[gemm.m], expander.largest()[gemm.m]);
      const uint32_t offer = gemms_.offer_of(gemm, choice);
      if (offer != Gemms::kNoOffer && seen.insert(offer).second) order.push_back(offer);
    }
  }
  return order;
}

std::vector<std::string> Player::supply_gemms(std::span<const GemmCode> codes,
                                              std::span<const GemmSupply> entries) {
  const std::lock_guard lock(supply_);
  const auto start = Clock::now();
  device_->use();
  Refusals refused;
  for (const GemmCode& code : codes) {
    std::string why = reason([&] { modules_->add(code.digest, code.cubin); });
    if (!why.empty()) refused.emplace(code.digest, std::move(why));
  }
  std::vector<std::string> reasons;
  for (const GemmSupply& entry : entries) {
    const GemmOffer offer = gemms_.offered(entry.offer);
    reasons.push_back(
        reason([&] { gemms_.add(entry.offer, stored_gemm(offer, entry.table, refused)); }));
    if (!reasons.back().empty()) gemms_.withdraw(entry.offer);
  }
  supply_ns_ += static_cast<uint64_t>((Clock::now() - start).count());
  return reasons;
}

std::shared_ptr<StoredGemm> Player::stored_gemm(const GemmOffer& offer,
                                                std::span<const std::byte> bytes,
                                                const Refusals& refused) {
  auto stored = std::make_shared<StoredGemm>(StoredGemm{Table(bytes), {}, {}, 0});
  const table::Records& entry = stored->table.records();
  std::vector<int64_t> sizes;
  for (const auto& symbol : entry.symbols) sizes.push_back(symbol.low);
  stored->table.evaluate(sizes, stored->values);
  for (const auto& region : entry.regions) {
    if (region.kind != table::RegionKind::kOperand) {
      refuse_entry("it uses other memory than its operands");
    }
    if (region.alignment > table::kStoredAlignment) {
      refuse_entry("operand " + std::to_string(region.index) + " is to start at a multiple of " +
                   std::to_string(region.alignment) + ", entries may ask for " +
                   std::to_string(table::kStoredAlignment));
    }
    const bool workspace = region.index == table::kWorkspaceOperand;
    if (workspace) stored->workspace = static_cast<uint64_t>(stored->values[region.size]);
  }
  if (stored->workspace > offer.workspace) refuse_entry("it needs more workspace than was offered");
  for (const auto& node : entry.nodes) {
    if (node.kind == table::NodeKind::kGemm) refuse_entry("it holds a matrix product itself");
  }
  for (const auto& cubin : entry.cubins) {
    const auto found = refused.find(hex_of(cubin.sha256));
    if (found != refused.end()) refuse_entry(found->second);
  }
  stored->shapes = shapes_of(entry, *modules_);
  return stored;
}

}  // namespace vcc
