#include "player/player.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "abi/error.h"
#include "driver/driver.h"
#include "player/timer.h"

namespace vcc {
namespace {

// What is read at once on its way to an array.
constexpr uint64_t kReadBytes = uint64_t{16} << 20;

// What each arena tag must have before a step.
constexpr struct {
  const char* tag;
  Need need;
} kNeeds[] = {{"weights", Need::kContents},
              {"kv_cache", Need::kMemory},
              {"io", Need::kMemory},
              {"workspace", Need::kMemory},
              {"scratch", Need::kMemory}};

}  // namespace

Player::Hold::Hold(Player& player) : busy_(player.busy()) {
  if (busy_.exchange(true)) {
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
  release_weights();
}

// Owners of driver objects that must not be destroyed.
void Player::abandon() noexcept {
  (void)graphs_.release();
  (void)inputs_.release();
  new std::list<std::pair<Key, Prepared>>(std::move(recent_));
  new std::shared_ptr<Modules>(modules_);
  for (Pinned* pinned : {&ring_, &logits_, &active_, &values_}) new Pinned(std::move(*pinned));
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

void Player::wait() {
  const Hold hold(*this);
  device_->use();
  VCC_CU(cuEventRecord(done_, stream_));
  wait_for(done_);
}

void Player::read(uint64_t address, std::span<uint8_t> bytes) {
  wait();
  const Hold hold(*this);
  VCC_CU(cuMemcpyDtoH(bytes.data(), address, bytes.size()));
}

void Player::read_values(uint64_t address, uint16_t dtype, const Values& to, uint64_t count) {
  wait();
  const Hold hold(*this);
  const uint64_t item = value_bytes(dtype), target = value_bytes(to.dtype);
  const uint64_t most = std::max<uint64_t>(1, kReadBytes / item);
  if (count != 0 && values_.bytes() < std::min(count, most) * item) {
    values_ = Pinned(std::min(count, most) * item);
  }
  for (uint64_t done = 0; done < count; done += most) {
    const uint64_t some = std::min(most, count - done);
    VCC_CU(cuMemcpyDtoHAsync(values_.data(), address + done * item, some * item, stream_));
    VCC_CU(cuEventRecord(done_, stream_));
    wait_for(done_);
    const Values from = {reinterpret_cast<char*>(values_.data()), dtype};
    move_values(from, {to.data + done * target, to.dtype}, some);
  }
}

void Player::write(uint64_t address, std::span<const uint8_t> bytes) {
  wait();
  const Hold hold(*this);
  VCC_CU(cuMemcpyHtoD(address, bytes.data(), bytes.size()));
}

}  // namespace vcc
