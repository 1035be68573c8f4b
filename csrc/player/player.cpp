#include "player/player.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "abi/error.h"
#include "driver/driver.h"

namespace vcc {
namespace {

constexpr uint64_t kKeptBytes = 16 << 20;  // of plain launches that are kept for the next step
constexpr int64_t kDeviceAlignment = 512;  // of what the arena gives

// Arena tags by region kind.
constexpr const char* kTags[] = {"weights", "kv_cache", "io", "workspace", "scratch"};
constexpr struct {
  const char* tag;
  Need need;
} kNeeds[] = {{"weights", Need::kContents},
              {"kv_cache", Need::kMemory},
              {"io", Need::kMemory},
              {"workspace", Need::kMemory},
              {"scratch", Need::kMemory}};

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

class Timer {
 public:
  explicit Timer(uint64_t& into) : into_(into), start_(std::chrono::steady_clock::now()) {}
  ~Timer() { into_ += static_cast<uint64_t>((std::chrono::steady_clock::now() - start_).count()); }

 private:
  uint64_t& into_;
  std::chrono::steady_clock::time_point start_;
};

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

Player::Hold::Hold(Player& player) : player_(player) {
  if (player.busy_.exchange(true)) {
    throw Error(Code::kUsage, "the model is running already",
                "its memory is fixed, so it computes one step at a time",
                "call it from one thread, or load it once for each thread");
  }
}

Player::Player(std::shared_ptr<Arena> arena, std::span<const std::byte> bytes,
               std::shared_ptr<Modules> modules)
    : arena_(std::move(arena)),
      device_(arena_, &arena_->device()),
      table_(Table(bytes)),
      modules_(std::move(modules)),
      gemms_(table_.records()) {
  open();
}

Player::Player(std::shared_ptr<Player> first, std::span<const std::byte> bytes)
    : first_(std::move(first)),
      arena_(first_->arena_),
      device_(first_->device_),
      table_(Table(bytes)),
      modules_(first_->modules_),
      gemms_(table_.records()) {
  open();
}

void Player::open() {
  for (const auto& region : table_.regions()) {
    if (region.kind > table::RegionKind::kScratch) {
      throw Error(Code::kIntegrity, "the table cannot be played as a step",
                  region.kind == table::RegionKind::kPeer
                      ? "it needs memory of other devices"
                      : "it is a matrix product of the GEMM store");
    }
  }
  device_->use();
  VCC_CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  if (const CUresult made = driver().cuEventCreate(&done_, CU_EVENT_DISABLE_TIMING);
      made != CUDA_SUCCESS) {
    driver().cuStreamDestroy(stream_);
    fail_call(made, "cuEventCreate(", __FILE__, __LINE__);
  }
}

Player::~Player() {
  // In a forked child the driver may not be called: what is left goes with the process.
  if (getpid() != process_) {
    abandon();
    return;
  }
  try {
    device_->use();
  } catch (const Error&) {
    // A lost device takes back what it still can.
  }
  driver().cuStreamSynchronize(stream_);
  gemms_.finish();  // threads that build graphs may wait for entries
  graphs_.reset();
  recent_.clear();
  inputs_.reset();
  driver().cuEventDestroy(done_);
  driver().cuStreamDestroy(stream_);
  release_memory();
  if (early_ != 0) quietly([&] { arena_->free(early_); });
}

// Owners of driver objects that must not be destroyed.
void Player::abandon() noexcept {
  (void)graphs_.release();
  (void)inputs_.release();
  new std::list<std::pair<Key, Prepared>>(std::move(recent_));
  new std::shared_ptr<Modules>(modules_);
  for (Pinned* pinned : {&ring_, &logits_, &active_}) new Pinned(std::move(*pinned));
}

// All but weights that were placed early: somebody may be writing them.
void Player::release_memory() noexcept {
  for (const CUdeviceptr address : std::exchange(allocated_, {})) {
    quietly([&] { arena_->free(address); });
  }
  if (cache_ != 0) quietly([&] { arena_->free_range(cache_); });
  cache_ = 0;
}

void Player::enter() {
  device_->use();
  if (arena_version_ == arena_->version()) return;
  const uint64_t version = arena_->version();
  for (const auto& one : kNeeds) arena_->require(one.tag, one.need, "cannot run a step");
  arena_version_ = version;
}

void Player::must_be_placed(const char* task) const { VCC_EXPECT(expander_ != nullptr, task); }

void Player::add_cubin(std::string_view digest, std::span<const uint8_t> cubin) {
  const auto start = std::chrono::steady_clock::now();
  device_->use();
  modules_->add(digest, cubin);
  modules_ns_ += static_cast<uint64_t>((std::chrono::steady_clock::now() - start).count());
}

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
  for (size_t i = 0; i < regions.size(); ++i) {
    const bool fits = i < other.size() && other[i].kind == regions[i].kind &&
                      region_bytes(regions[i], expander.largest()) <= first_->places_[i].bytes;
    if (!fits) {
      throw Error(Code::kIntegrity, "a table does not fit the memory of the others",
                  "region " + std::to_string(i) + " is another or larger");
    }
    places_.push_back(first_->places_[i]);
  }
  // Behind its regions the first has room for the GEMM store, where its table has no scratch.
  if (regions.size() == other.size() && first_->places_.size() > other.size()) {
    places_.push_back(first_->places_.back());
  }
  mapped_ = first_->mapped_;
}

void Player::map_blocks(int64_t mapped) {
  const Hold hold(*this);
  must_be_placed("blocks are mapped after the memory is placed");
  VCC_EXPECT(mapped >= mapped_ && mapped <= blocks_, "more blocks, within the reserved ones");
  device_->use();
  map_caches(mapped);
}

// Tensors [2, K, ...]: the keys of all blocks, then the values of all blocks.
void Player::map_caches(int64_t mapped) {
  mapped_ = mapped;
  if (cache_ == 0) return;
  const uint64_t chunk = arena_->range_chunk(cache_);
  std::vector<int64_t> sizes, values;
  for (const auto& symbol : table_.symbols()) {
    sizes.push_back(table_.text(symbol.name) == "K" ? blocks_ : symbol.high);
  }
  table_.evaluate(sizes, values);
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
      const uint64_t low = start / chunk * chunk;
      const uint64_t high =
          std::min((start + used + chunk - 1) / chunk * chunk, places_[tensor.region].bytes);
      arena_->map_range(cache_, low, high - low);
    }
  }
}

void Player::build(std::vector<Descriptor> descriptors, uint32_t hot, uint32_t threads) {
  const Hold hold(*this);
  const Timer timer(times_.hot);
  must_be_placed("graphs are built after the memory is placed");
  device_->use();
  graphs_->build(std::move(descriptors), hot, threads);
}

GraphCounts Player::graphs(bool wait) {
  must_be_placed("graphs are asked for after the memory is placed");
  if (wait) graphs_->wait();
  return graphs_->counts();
}

uint32_t Player::acquire_slot() {
  const Hold hold(*this);
  must_be_placed("a slot is asked for after the memory is placed");
  device_->use();
  return inputs_->acquire();
}

void Player::step(const StepCall& call) {
  const Hold hold(*this);
  must_be_placed("a step runs after the memory is placed");
  VCC_EXPECT(call.slot < inputs_->slots(), "an input slot");
  enter();
  check_rows(call.rows, call.step.seqs);
  const Prepared& ready = prepared(call.mode, call.step);
  inputs_->send(call.slot, inputs_->copies(call.inputs, ready.values), stream_);
  run(ready);
  read_back(call, ready);
  ++times_.steps;
  if ((call.flags & kDoNotWait) != 0) return;
  VCC_CU(cuEventRecord(done_, stream_));
  wait_for(done_);
}

void Player::check_rows(uint32_t rows, int64_t seqs) const {
  if (rows > seqs) {
    throw Error(Code::kUsage, "a step of " + std::to_string(seqs) + " sequences cannot run",
                "it is asked for the results of " + std::to_string(rows));
  }
}

void Player::wait() {
  const Hold hold(*this);
  device_->use();
  VCC_CU(cuEventRecord(done_, stream_));
  wait_for(done_);
}

void Player::run(const Prepared& ready) {
  for (const Prepared::Action& action : ready.actions) {
    if (action.graph != nullptr) {
      action.graph->launch(stream_);
      ++times_.graph_launches;
    } else {
      launch_plainly(ready.expansion, action.first, action.count, stream_);
      times_.plain_launches += action.count;
    }
  }
}

void Player::read_back(const StepCall& call, const Prepared& ready) {
  if ((call.flags & kReadLogits) != 0) {
    const table::Tensor* logits = table_.find_tensor("logits");
    VCC_EXPECT(logits != nullptr, "the table has an output called logits");
    const auto all = bytes_of(table_.records(), *logits, ready.values);
    const uint64_t bytes = all / static_cast<uint64_t>(call.step.seqs) * call.rows;
    if (bytes > logits_.bytes()) logits_ = Pinned(bytes);
    VCC_CU(cuMemcpyDtoHAsync(logits_.data(), address_of(*logits, ready.values), bytes, stream_));
  }
  if ((call.flags & kReadTokens) != 0) {
    const Input* token = inputs_->find("token");
    VCC_EXPECT(token != nullptr, "the table samples");
    VCC_CU(cuMemcpyDtoHAsync(ring_.data(), token->device, call.rows * sizeof(int32_t), stream_));
  }
}

void Player::read(uint64_t address, std::span<uint8_t> bytes) {
  wait();
  const Hold hold(*this);
  VCC_CU(cuMemcpyDtoH(bytes.data(), address, bytes.size()));
}

void Player::write(uint64_t address, std::span<const uint8_t> bytes) {
  wait();
  const Hold hold(*this);
  VCC_CU(cuMemcpyHtoD(address, bytes.data(), bytes.size()));
}

const Prepared& Player::prepared(Mode mode, const Step& step) {
  const Key key{mode, step};
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    const Prepared& kept = found->second->second;
    if (kept.complete || kept.version == graphs_->version()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      return kept;
    }
    kept_bytes_ -= kept.expansion.bytes();
    recent_.erase(found->second);
    by_key_.erase(found);
  }
  const Timer timer(times_.prepare);
  Prepared made;
  made.version = graphs_->version();
  made.values = expander_->values(step);
  if (mode != Mode::kFull || !add_full(made, step)) {
    made.expansion = expander_->expand(step);
    if (mode == Mode::kPiecewise) {
      add_piecewise(made, step);
    } else {
      made.actions = {{nullptr, 0, static_cast<uint32_t>(made.expansion.launches.size())}};
      made.complete = mode == Mode::kPlain;
    }
  }
  kept_bytes_ += made.expansion.bytes();
  ++times_.prepared;
  recent_.emplace_front(key, std::move(made));
  by_key_[key] = recent_.begin();
  while (kept_bytes_ > kKeptBytes && recent_.size() > 1) {
    kept_bytes_ -= recent_.back().second.expansion.bytes();
    by_key_.erase(recent_.back().first);
    recent_.pop_back();
  }
  return recent_.front().second;
}

// A graph of the step itself, or of the step without its head or tail, which are then launched.
bool Player::add_full(Prepared& made, const Step& step) const {
  if (auto exact = graphs_->full(step)) {
    made.actions = {{std::move(exact), 0, 0}};
    return true;
  }
  Step wider = step;
  wider.sample = true;  // tokens that nobody asked for do no harm
  if (auto graph = step.sample ? nullptr : graphs_->full(wider)) {
    made.actions = {{std::move(graph), 0, 0}};
    return true;
  }
  for (const bool sample : {true, false}) {
    Step inner = step;
    inner.advance = false;
    inner.sample = sample;
    if (sample && !step.sample) continue;
    auto graph = graphs_->full(inner);
    if (graph == nullptr) continue;
    made.expansion = expander_->expand(step);
    bool placed = false;
    for (const Run& run : made.expansion.runs) {
      const auto kind = table_.segments()[run.segment].kind;
      const bool own =
          kind == table::SegmentKind::kAdvance || (kind == table::SegmentKind::kSample && !sample);
      if (own) {
        made.actions.push_back({nullptr, run.first, run.count});
      } else if (!std::exchange(placed, true)) {
        made.actions.push_back({graph, 0, 0});
      }
    }
    return true;
  }
  return false;
}

void Player::add_piecewise(Prepared& made, const Step& step) const {
  const auto pieces = graphs_->pieces(step.tokens, step.adapted);
  made.complete = pieces != nullptr;
  for (const Run& run : made.expansion.runs) {
    const Dependence& needs = expander_->dependences()[run.segment];
    // A piece that depends on more than the tokens has its graph for one value of that.
    const bool fits = pieces != nullptr && pieces->graphs[run.segment] &&
                      (!needs.seqs || pieces->step.seqs == step.seqs) &&
                      (!needs.when || pieces->step.uniform == step.uniform) &&
                      (!needs.adapted || pieces->step.adapted == step.adapted);
    if (fits) {
      made.actions.push_back({{pieces, &pieces->graphs[run.segment]}, 0, 0});
    } else if (!made.actions.empty() && made.actions.back().graph == nullptr) {
      made.actions.back().count += run.count;
    } else {
      made.actions.push_back({nullptr, run.first, run.count});
    }
  }
}

uint64_t Player::address_of(const table::Tensor& tensor, const std::vector<int64_t>& values) const {
  return places_[tensor.region].address + static_cast<uint64_t>(values[tensor.offset]);
}

}  // namespace vcc
