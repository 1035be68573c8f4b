// The decode loop: the device advances, computes and samples by itself, the host launches, sees
// tokens and stops. It launches step i + ahead before it has seen the tokens of step i, so the
// device does not wait; a sequence that ended meanwhile has computed a little too much, into blocks
// of its own.
#include <chrono>
#include <cstring>
#include <limits>

#include "abi/error.h"
#include "driver/driver.h"
#include "player/player.h"

namespace vcc {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kUnseen = std::numeric_limits<int32_t>::min();
constexpr uint32_t kManyRows = 8;  // changed rows beyond which the whole block table is sent
constexpr auto kAskDriver = std::chrono::microseconds(200);

// Which sequences go on; tells the device of those that do not.
class Running {
 public:
  Running(const DecodeCall& call, int32_t* active) : call_(call), active_(active) {}

  // Look at the tokens of a step; true when a sequence ended.
  bool see(const int32_t* tokens) {
    bool ended = false;
    for (uint32_t b = 0; b < call_.rows; ++b) {
      if (active_[b] == 0 || !stops(b, tokens[b])) continue;
      active_[b] = 0;
      ++ended_;
      ended = true;
    }
    return ended;
  }

  bool enough() const { return ended_ != 0 && (ended_ >= call_.finish || ended_ >= alive_); }
  void start() {
    for (uint32_t b = 0; b < call_.rows; ++b) alive_ += active_[b] != 0;
  }

 private:
  // A word below zero is -1 - id: chosen from logits with NaN or infinity, and no end by itself.
  bool stops(uint32_t b, int32_t word) const {
    const int32_t token = word < 0 ? -1 - word : word;
    for (int32_t i = call_.stop_start[b]; i < call_.stop_start[b + 1]; ++i) {
      if (call_.stops[static_cast<size_t>(i)] == token) return true;
    }
    return false;
  }

  const DecodeCall& call_;
  int32_t* active_;
  uint32_t alive_ = 0, ended_ = 0;
};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int32_t seen(const int32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

}  // namespace

int32_t* Player::ring_row(uint32_t step) const {
  return reinterpret_cast<int32_t*>(ring_.data()) + uint64_t{step} * ring_width_;
}

// Tokens land as words of their own: a row is there when none of its words is the mark any more.
bool Player::wait_row(int32_t* row, uint32_t count) {
  auto asked = Clock::now();
  for (uint32_t b = 0; b < count;) {
    if (seen(row + b) != kUnseen) {
      ++b;
      continue;
    }
    relax();
    if (Clock::now() - asked < kAskDriver) continue;
    const CUresult result = driver().cuStreamQuery(stream_);
    if (result == CUDA_SUCCESS) return true;  // all of it has landed
    if (result != CUDA_ERROR_NOT_READY) fail_call(result, "cuStreamQuery(", __FILE__, __LINE__);
    asked = Clock::now();
  }
  return true;
}

uint32_t Player::decode(const DecodeCall& call) {
  const Hold hold(*this);
  must_be_placed("decoding runs after the memory is placed");
  const Input* token = inputs_->find("token");
  const Input* active = inputs_->find("active");
  const Input* blocks = inputs_->find("block_table");
  VCC_EXPECT(token != nullptr && active != nullptr && blocks != nullptr, "the table decodes");
  VCC_EXPECT(call.steps > 0 && call.steps <= ring_steps_, "steps of a run");
  VCC_EXPECT(call.slot < inputs_->slots(), "an input slot");
  VCC_EXPECT(call.stop_start.size() == call.rows + 1 && call.gaps.size() >= call.steps,
             "arrays of a run");
  enter();
  check_rows(call.rows, call.size);
  const Prepared& ready = prepared(call.mode, {call.size, call.size, call.uniform, /*sample=*/true,
                                               /*advance=*/true, call.adapted});

  auto* going = reinterpret_cast<int32_t*>(active_.data());
  if (call.fresh) {
    const uint32_t all = kStepInputs | kSamplingInputs | kTokenInput;
    std::memcpy(going, inputs_->at(call.slot) + active->host, call.rows * sizeof(int32_t));
    inputs_->send(call.slot, inputs_->copies(all, ready.values), stream_);
  } else {
    const uint64_t table =
        bytes_of(table_.records(), table_.tensors()[blocks->tensor], ready.values);
    const uint64_t row = table / static_cast<uint64_t>(call.size);
    if (call.changed.size() > kManyRows) {
      inputs_->send_part(call.slot, *blocks, 0, row * call.rows, stream_);
    } else {
      for (const int32_t b : call.changed) {
        VCC_EXPECT(b >= 0 && b < static_cast<int32_t>(call.rows), "a row of the block table");
        inputs_->send_part(call.slot, *blocks, row * static_cast<uint64_t>(b), row, stream_);
      }
    }
    inputs_->mark_used(call.slot, stream_);
  }
  Running running(call, going);
  running.start();
  for (uint32_t i = 0; i < call.steps; ++i) std::fill_n(ring_row(i), call.rows, kUnseen);

  uint32_t launched = 0, done = 0;
  const auto launch = [&] {
    run(ready);
    VCC_CU(
        cuMemcpyDtoHAsync(ring_row(launched), token->device, call.rows * sizeof(int32_t), stream_));
    ++launched;
  };
  while (launched < call.steps && launched <= call.ahead) launch();
  while (done < launched) {
    const int32_t* row = ring_row(done);
    wait_row(ring_row(done), call.rows);
    const auto visible = Clock::now();
    ++done;
    const bool ended = running.see(row);
    const bool stopped = call.stop->load(std::memory_order_relaxed) != 0;
    call.visible->store(done, std::memory_order_release);
    if (stopped || running.enough()) break;
    if (launched == call.steps) continue;
    launch();
    call.gaps[done - 1] = (Clock::now() - visible).count();
    if (ended) {
      VCC_CU(
          cuMemcpyHtoDAsync(active->device, active_.data(), call.rows * sizeof(int32_t), stream_));
    }
  }
  times_.steps += launched;
  VCC_CU(cuEventRecord(done_, stream_));
  wait_for(done_);
  return done;
}

}  // namespace vcc
