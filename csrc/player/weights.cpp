#include "player/weights.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "driver/device.h"
#include "player/weights_pieces.h"

namespace vcc::weights {

namespace {

constexpr int kSlots = 2;  // one is read into while the other is on its way

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The pinned slots and the stream of one reader.
class Lane {
 public:
  explicit Lane(uint64_t slot_bytes) : scratch_(new char[slot_bytes]), slot_bytes_(slot_bytes) {
    try {
      VCC_CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
      for (Slot& slot : slots_) VCC_CU(cuEventCreate(&slot.sent, CU_EVENT_DISABLE_TIMING));
      void* pinned = nullptr;
      VCC_CU(cuMemHostAlloc(&pinned, kSlots * slot_bytes, 0));
      pinned_ = static_cast<char*>(pinned);
    } catch (...) {
      release();
      throw;
    }
  }
  ~Lane() { release(); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Read one piece and send it; waits only for the slot that it uses.
  uint64_t move(const Piece& piece, const Sources& sources, uint64_t base) {
    Slot& slot = slots_[next_];
    char* at = pinned_ + next_ * slot_bytes_;
    if (slot.used) VCC_CU(cuEventSynchronize(slot.sent));
    fill(piece, sources, at, scratch_.get(), runs_);
    uint64_t bytes = 0;
    for (const Run& run : runs_) {
      VCC_CU(cuMemcpyHtoDAsync(base + run.destination, at + run.slot, run.bytes, stream_));
      bytes += run.bytes;
    }
    VCC_CU(cuEventRecord(slot.sent, stream_));
    slot.used = true;
    next_ = (next_ + 1) % kSlots;
    return bytes;
  }

  void finish() { VCC_CU(cuStreamSynchronize(stream_)); }

 private:
  struct Slot {
    CUevent sent = nullptr;
    bool used = false;
  };

  void release() noexcept {
    // A slot that is still being read by the device must not go away.
    if (stream_ != nullptr) driver().cuStreamSynchronize(stream_);
    for (const Slot& slot : slots_) {
      if (slot.sent != nullptr) driver().cuEventDestroy(slot.sent);
    }
    if (pinned_ != nullptr) driver().cuMemFreeHost(pinned_);
    if (stream_ != nullptr) driver().cuStreamDestroy(stream_);
  }

  std::unique_ptr<char[]> scratch_;
  uint64_t slot_bytes_;
  CUstream stream_ = nullptr;
  char* pinned_ = nullptr;
  Slot slots_[kSlots];
  int next_ = 0;
  std::vector<Run> runs_;
};

// What the readers share. The first error ends all of them.
class Upload {
 public:
  Upload(Device& device, const Sources& sources, const std::vector<Piece>& pieces, uint64_t base,
         uint64_t slot_bytes)
      : device_(device), sources_(sources), pieces_(pieces), base_(base), slot_bytes_(slot_bytes) {}

  void run(uint32_t threads) {
    std::vector<std::thread> others;
    try {
      for (uint32_t i = 1; i < threads; ++i) others.emplace_back([this] { read(); });
    } catch (const std::system_error&) {
      // Fewer threads than wished for: slower, not wrong.
    }
    read();
    for (std::thread& other : others) other.join();
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

  uint64_t bytes() const { return bytes_.load(); }
  uint32_t lanes() const { return lanes_.load(); }
  double first() const { return first_.load(); }

 private:
  void read() noexcept {
    try {
      if (next_.load(std::memory_order_relaxed) >= pieces_.size()) return;
      device_.use();
      Lane lane(slot_bytes_);
      lanes_.fetch_add(1);
      for (size_t i; !failed_ && (i = next_.fetch_add(1)) < pieces_.size();) {
        bytes_.fetch_add(lane.move(pieces_[i], sources_, base_));
        if (i == 0) first_.store(seconds_since(start_));
      }
      lane.finish();
    } catch (...) {
      const std::lock_guard lock(error_lock_);
      if (error_ == nullptr) error_ = std::current_exception();
      failed_ = true;
    }
  }

  Device& device_;
  const Sources& sources_;
  const std::vector<Piece>& pieces_;
  const uint64_t base_;
  const uint64_t slot_bytes_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint32_t> lanes_{0};
  std::atomic<double> first_{0};
  std::atomic<bool> failed_{false};
  std::mutex error_lock_;
  std::exception_ptr error_;
};

}  // namespace

}  // namespace vcc::weights

int32_t vcc_weights_load(uint64_t device, uint64_t base, uint64_t region_bytes, const char* paths,
                         uint64_t path_bytes, const void* least, uint32_t files, const void* copies,
                         uint64_t count, const char* constants, uint64_t constant_bytes,
                         uint32_t threads, uint64_t slot_bytes, uint64_t* bytes, double* seconds,
                         double* first, uint64_t* ring) {
  using namespace vcc::weights;
  return vcc::guarded([&] {
    const auto start = Clock::now();
    const auto held = vcc::device_of(device);
    held->use();
    const Sources sources(paths, path_bytes, static_cast<const uint64_t*>(least), files, constants,
                          constant_bytes);
    const std::vector<Copy> checked_copies =
        checked(static_cast<const Copy*>(copies), count, sources, region_bytes);
    const std::vector<Piece> pieces = cut(checked_copies, slot_bytes);
    Upload upload(*held, sources, pieces, base, slot_bytes);
    upload.run(std::clamp<uint32_t>(threads, 1, std::max<size_t>(pieces.size(), 1)));
    *bytes = upload.bytes();
    *first = upload.first();
    *ring = upload.lanes() * kSlots * slot_bytes;
    *seconds = seconds_since(start);
  });
}
