#include "ring.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

namespace vcc {

namespace {

constexpr uint32_t kMostThreads = 16;

using Clock = std::chrono::steady_clock;

// Adds its own life to a sum of seconds.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum) {}
  ~Stopwatch() { sum_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_;
  Clock::time_point start_ = Clock::now();
};

size_t thread_count(uint32_t wanted) {
  const uint32_t cores = std::max(std::thread::hardware_concurrency(), 1u);
  return wanted == 0 ? std::min(cores, kMostThreads) : wanted;
}

}  // namespace

Lane::Lane(std::shared_ptr<Device> device, size_t slot_bytes)
    : device_(std::move(device)), slot_bytes_(slot_bytes) {
  try {
    VCC_CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (Slot& slot : slots_) VCC_CU(cuEventCreate(&slot.over, CU_EVENT_DISABLE_TIMING));
    void* pinned = nullptr;
    VCC_CU(cuMemHostAlloc(&pinned, kSlots * slot_bytes, kHostAllocPortable));
    pinned_ = static_cast<char*>(pinned);
    for (size_t i = 0; i < kSlots; ++i) slots_[i].memory = pinned_ + i * slot_bytes;
  } catch (...) {
    release();
    throw;
  }
}

Lane::~Lane() { release(); }

Lane::Slot& Lane::turn() {
  Slot& slot = slots_[next_];
  if (slot.piece != kNone) VCC_CU(cuEventSynchronize(slot.over));
  return slot;
}

void Lane::begun(size_t piece) {
  Slot& slot = slots_[next_];
  VCC_CU(cuEventRecord(slot.over, stream_));
  slot.piece = piece;
  pass();
}

void Lane::settle() noexcept {
  if (stream_ != nullptr && !device_->lost()) driver().cuStreamSynchronize(stream_);
  for (Slot& slot : slots_) slot.piece = kNone;
}

char* Lane::scratch() {
  if (!scratch_) scratch_.reset(new char[slot_bytes_]);
  return scratch_.get();
}

// A slot that the device still reads must not go away.
void Lane::release() noexcept {
  if (device_->lost()) return;  // the context's end frees everything
  settle();
  for (const Slot& slot : slots_) {
    if (slot.over != nullptr) driver().cuEventDestroy(slot.over);
  }
  if (pinned_ != nullptr) driver().cuMemFreeHost(pinned_);
  if (stream_ != nullptr) driver().cuStreamDestroy(stream_);
}

Ring::Ring(std::shared_ptr<Device> device, uint32_t threads, size_t slot_bytes)
    : device_(std::move(device)), slot_bytes_(slot_bytes), lanes_(thread_count(threads)) {
  VCC_EXPECT(slot_bytes >= 64, "a slot is too small");
}

Lane& Ring::lane(size_t index) {
  auto& found = lanes_[index];
  if (!found) found = std::make_unique<Lane>(device_, slot_bytes_);
  return *found;
}

size_t Ring::bytes() const {
  const auto made = std::count_if(lanes_.begin(), lanes_.end(), [](auto& lane) { return !!lane; });
  return static_cast<size_t>(made) * Lane::kSlots * slot_bytes_;
}

Transfer::Transfer(Ring& ring, Pieces& pieces)
    : ring_(ring), pieces_(pieces), count_(pieces.count()) {
  const size_t wanted = std::min(ring.threads(), std::max(count_, size_t{1}));
  threads_.reserve(wanted);
  try {
    for (size_t i = 1; i < wanted; ++i) threads_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error&) {
    // Fewer threads than wished for.
  }
}

Transfer::~Transfer() {
  {
    const std::lock_guard lock(lock_);
    stopped_ = true;
  }
  join();
}

void Transfer::open(size_t limit) {
  {
    const std::lock_guard lock(lock_);
    open_ = std::max(open_, std::min(limit, count_));
  }
  opened_.notify_all();
}

void Transfer::finish() {
  open(count_);
  work(0);
  join();
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void Transfer::join() noexcept {
  opened_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

bool Transfer::claim(size_t* piece) {
  std::unique_lock lock(lock_);
  opened_.wait(
      lock, [this] { return stopped_ || error_ != nullptr || next_ < open_ || next_ == count_; });
  if (stopped_ || error_ != nullptr || next_ == count_) return false;
  *piece = next_++;
  if (next_ == count_) opened_.notify_all();
  return true;
}

void Transfer::work(size_t lane_index) noexcept {
  TransferTimes times;
  Lane* lane = nullptr;
  try {
    if (size_t first; claim(&first)) {
      ring_.device().use();
      lane = &ring_.lane(lane_index);
      move(*lane, first, times);
    }
  } catch (...) {
    keep_error();
    if (lane != nullptr) lane->settle();
  }
  const std::lock_guard lock(lock_);
  times_.host += times.host;
  times_.link += times.link;
}

void Transfer::move(Lane& lane, size_t piece, TransferTimes& times) {
  do {
    char* slot = ready(lane, times);
    {
      const Stopwatch watch(times.host);
      pieces_.begin(piece, lane, slot);
    }
    lane.begun(piece);
  } while (claim(&piece));
  if (ended_early()) return lane.settle();
  for (size_t i = 0; i < Lane::kSlots; ++i) {
    ready(lane, times);
    lane.pass();
  }
}

// The slot whose turn it is, when its piece has ended.
char* Transfer::ready(Lane& lane, TransferTimes& times) {
  Lane::Slot* slot = nullptr;
  {
    const Stopwatch watch(times.link);
    slot = &lane.turn();
  }
  const size_t piece = std::exchange(slot->piece, Lane::kNone);
  if (piece != Lane::kNone) {
    const Stopwatch watch(times.host);
    pieces_.end(piece, slot->memory);
  }
  return slot->memory;
}

bool Transfer::ended_early() {
  const std::lock_guard lock(lock_);
  return stopped_ || error_ != nullptr;
}

void Transfer::keep_error() noexcept {
  {
    const std::lock_guard lock(lock_);
    if (error_ == nullptr) error_ = std::current_exception();
  }
  opened_.notify_all();
}

}  // namespace vcc
