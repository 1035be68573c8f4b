// Memory of a player: regions and the KV cache in the arena, shared by tables beside one another.
#include <algorithm>
#include <utility>

#include "abi/error.h"
#include "driver/driver.h"
#include "player/player.h"
#include "player/timer.h"

namespace vcc {
namespace {

constexpr int64_t kDeviceAlignment = 512;  // of what the arena gives

// Arena tags by region kind.
constexpr const char* kTags[] = {"weights", "kv_cache", "io", "workspace", "scratch"};

// Chunks of a cache's memory: large ones are mapped faster, small ones waste less at the end of
// each half (keys, values) that is mapped in part. 0: the arena's own choice.
uint64_t cache_chunk(uint64_t bytes, int64_t mapped, int64_t blocks) {
  constexpr uint64_t kLeast = 2 << 20, kParts = 4096;
  if (bytes < 32 * kLeast) return kLeast;
  if (mapped == blocks) return 0;
  uint64_t chunk = kLeast;
  while (bytes / chunk > kParts) chunk *= 2;
  return chunk;
}

// Tries twice: nothing more can be done about memory that the device does not take back.
template <class Work>
void quietly(Work&& work) noexcept {
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      return work();
    } catch (const std::exception&) {
    }
  }
}

}  // namespace

uint64_t Player::region_bytes(const table::Region& region,
                              const std::vector<int64_t>& values) const {
  const auto bytes = static_cast<uint64_t>(values[region.size]);
  const bool scratch = region.kind == table::RegionKind::kScratch;
  return scratch ? std::max(bytes, workspace()) : bytes;
}

// Bytes that entries of the GEMM store need, those for tables beside this one too.
uint64_t Player::workspace() const { return std::max(gemms_.workspace(), beside_workspace_); }

// A number of KV blocks that the table takes, for what does not depend on it.
int64_t Player::least_blocks() const {
  const auto blocks = table_.find_symbol("K");
  return blocks ? table_.symbols()[*blocks].low : 0;
}

std::array<uint64_t, 5> Player::bytes(int64_t blocks) const {
  const Expander expander(table_, shapes_, places_, gemms_, blocks);
  std::array<uint64_t, 5> bytes = {0, 0, 0, 0, workspace()};
  for (const auto& region : table_.regions()) {
    bytes[static_cast<uint32_t>(region.kind)] = region_bytes(region, expander.largest());
  }
  return bytes;
}

Place Player::place_weights() {
  const Hold hold(*this);
  const Timer timer(times_.place);
  VCC_EXPECT(expander_ == nullptr && !weights_ && first_ == nullptr, "weights are placed once");
  device_->use();
  const auto region = table_.find_region(table::RegionKind::kWeights);
  if (!region) return weights_.emplace();
  const Expander expander(table_, shapes_, places_, gemms_, least_blocks());
  const auto& weights = table_.regions()[*region];
  return weights_.emplace(allocate(weights, region_bytes(weights, expander.largest()), early_));
}

void Player::place(int64_t blocks, int64_t mapped, uint32_t slots, uint32_t ring) {
  const Hold hold(*this);
  const Timer timer(times_.place);
  VCC_EXPECT(expander_ == nullptr, "a player is placed once");
  VCC_EXPECT(slots > 0 && ring > 0 && mapped >= 0 && mapped <= blocks, "counts of place");
  device_->use();
  shapes_ = shapes_of(table_.records(), *modules_);
  end_offers(true);  // their workspace is part of the memory
  blocks_ = blocks;
  auto expander = std::make_unique<Expander>(table_, shapes_, places_, gemms_, blocks);
  try {
    if (first_ != nullptr) {
      share_regions(*expander);
    } else {
      place_regions(*expander, mapped);
    }
    auto inputs = std::make_unique<InputRing>(table_, *expander, places_, slots);
    if (const Input* token = inputs->find("token"); token != nullptr) {
      ring_ = Pinned(uint64_t{ring} * token->bytes);
      active_ = Pinned(token->bytes);
      ring_steps_ = ring;
      ring_width_ = static_cast<uint32_t>(token->bytes / sizeof(int32_t));
    }
    graphs_ = std::make_unique<Graphs>(device_, table_, *expander);
    inputs_ = std::move(inputs);
  } catch (...) {
    release_memory();
    end_offers(false);
    throw;
  }
  expander_ = std::move(expander);
}

void Player::place_regions(const Expander& expander, int64_t mapped) {
  const auto& values = expander.largest();
  const auto regions = table_.regions();
  places_.assign(regions.size(), {});
  for (size_t i = 0; i < regions.size(); ++i) {
    const auto kind = regions[i].kind;
    const uint64_t bytes = region_bytes(regions[i], values);
    if (kind == table::RegionKind::kKvCache) {
      if (bytes == 0) continue;
      cache_ = arena_->reserve_range(bytes, cache_chunk(bytes, mapped, blocks_),
                                     kTags[static_cast<uint32_t>(kind)]);
      cache_bytes_ = bytes;
      places_[i] = {cache_, bytes};
      continue;
    }
    const bool early = kind == table::RegionKind::kWeights && weights_;
    places_[i] = early ? *weights_ : allocate(regions[i], bytes, allocated_.emplace_back(0));
    if (kind == table::RegionKind::kIo && bytes != 0) {
      VCC_CU(cuMemsetD8Async(places_[i].address, 0, bytes, stream_));
    }
  }
  if (!table_.find_region(table::RegionKind::kScratch) && workspace() != 0) {
    allocated_.push_back(arena_->allocate(workspace(), "scratch"));
    places_.push_back({allocated_.back(), workspace()});
  }
  map_caches(mapped);
}

Place Player::allocate(const table::Region& region, uint64_t bytes, CUdeviceptr& start) {
  const uint64_t alignment = std::max<uint64_t>(region.alignment, kDeviceAlignment);
  const uint64_t all = std::max<uint64_t>(bytes, 1) + alignment - kDeviceAlignment;
  start = arena_->allocate(all, kTags[static_cast<uint32_t>(region.kind)]);
  return {(start + alignment - 1) / alignment * alignment, bytes};
}

void Player::share_regions(const Expander& expander) {
  const auto regions = table_.regions(), other = first_->table_.regions();
  first_->must_be_placed("a table beside another is placed after that one");
  VCC_EXPECT(blocks_ == first_->blocks_, "tables of one memory have the same KV blocks");
  places_.clear();  // of an attempt that failed
  for (size_t i = 0; i < regions.size(); ++i) {
    const bool fits = i < other.size() && other[i].kind == regions[i].kind &&
                      other[i].alignment >= regions[i].alignment &&
                      region_bytes(regions[i], expander.largest()) <= first_->places_[i].bytes;
    if (!fits) {
      throw Error(Code::kIntegrity, "a table does not fit the memory of the others",
                  "region " + std::to_string(i) + " is another, larger or more aligned");
    }
    places_.push_back(first_->places_[i]);
  }
  // Behind its regions the first has room for the GEMM store, where its table has no scratch.
  if (regions.size() == other.size() && first_->places_.size() > other.size()) {
    places_.push_back(first_->places_.back());
  }
}

uint64_t Player::map_blocks(int64_t mapped) {
  const Hold hold(*this);
  must_be_placed("blocks are mapped after the memory is placed");
  VCC_EXPECT(first_ == nullptr, "the player that was placed first has the blocks of all");
  VCC_EXPECT(mapped >= 0 && mapped <= blocks_, "blocks within the reserved ones");
  device_->use();
  map_caches(mapped);
  return cache_ == 0 ? 0 : arena_->range_mapped(cache_);
}

// What the first `mapped` blocks need of the caches' memory: whole chunks, in order and apart.
// Tensors are [2, K, ...]: the keys of all blocks, then the values of all blocks.
std::vector<Player::Part> Player::cache_parts(int64_t mapped) const {
  const uint64_t chunk = arena_->range_chunk(cache_);
  std::vector<int64_t> sizes, values;
  for (const auto& symbol : table_.symbols()) {
    sizes.push_back(table_.text(symbol.name) == "K" ? blocks_ : symbol.high);
  }
  table_.evaluate(sizes, values);
  std::vector<Part> parts;
  for (const auto& tensor : table_.tensors()) {
    if (table_.regions()[tensor.region].kind != table::RegionKind::kKvCache) continue;
    const uint64_t bytes = bytes_of(table_.records(), tensor, values);
    const bool paged = tensor.dims >= 2;
    const uint64_t halves =
        paged ? static_cast<uint64_t>(values[table_.records().lists[tensor.first_dim]]) : 1;
    const uint64_t half = bytes / std::max<uint64_t>(halves, 1);
    const uint64_t used = paged ? half / static_cast<uint64_t>(std::max<int64_t>(blocks_, 1)) *
                                      static_cast<uint64_t>(mapped)
                                : half;
    for (uint64_t h = 0; h < halves && used != 0; ++h) {
      const uint64_t start = static_cast<uint64_t>(values[tensor.offset]) + h * half;
      parts.push_back({start / chunk * chunk, std::min((start + used + chunk - 1) / chunk * chunk,
                                                       places_[tensor.region].bytes)});
    }
  }
  std::sort(parts.begin(), parts.end());
  std::vector<Part> apart;
  for (const Part& part : parts) {
    if (apart.empty() || part.first > apart.back().second) {
      apart.push_back(part);
    } else {
      apart.back().second = std::max(apart.back().second, part.second);
    }
  }
  return apart;
}

// All or nothing: what cannot be mapped leaves the caches with the memory that they had.
void Player::map_caches(int64_t mapped) {
  if (cache_ != 0) {
    try {
      for (const auto& [low, high] : cache_parts(mapped)) {
        arena_->map_range(cache_, low, high - low);
      }
    } catch (...) {
      quietly([&] { unmap_beyond(mapped_); });
      throw;
    }
    if (mapped < mapped_) unmap_beyond(mapped);
  }
  mapped_ = mapped;
}

// Take the memory of what the first `mapped` blocks do not need.
void Player::unmap_beyond(int64_t mapped) {
  uint64_t from = 0;
  const auto gap = [&](uint64_t low, uint64_t high) {
    if (low < high) arena_->unmap_range(cache_, low, high - low);
  };
  for (const auto& [low, high] : cache_parts(mapped)) {
    gap(std::exchange(from, high), low);
  }
  gap(from, cache_bytes_);
}

// All but weights that were placed early: somebody may be writing them.
void Player::release_memory() noexcept {
  for (const CUdeviceptr address : std::exchange(allocated_, {})) {
    quietly([&] { arena_->free(address); });
  }
  if (cache_ != 0) quietly([&] { arena_->free_range(cache_); });
  cache_ = 0;
}

// Weights that were placed early go last: nobody writes them any more.
void Player::release_weights() noexcept {
  if (early_ != 0) quietly([&] { arena_->free(early_); });
}

uint64_t Player::address_of(const table::Tensor& tensor, const std::vector<int64_t>& values) const {
  return places_[tensor.region].address + static_cast<uint64_t>(values[tensor.offset]);
}

}  // namespace vcc
