#include "player/weights.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "driver/device.h"
#include "memory/ring.h"
#include "player/weights_pieces.h"

namespace vcc::weights {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The pieces of files on their way to a device.
class Upload : public Pieces {
 public:
  Upload(const Sources& sources, const std::vector<Piece>& pieces, uint64_t base)
      : sources_(sources), pieces_(pieces), base_(base) {}

  size_t count() const override { return pieces_.size(); }

  void begin(size_t index, Lane& lane, char* slot) override {
    thread_local std::vector<Run> runs;
    fill(pieces_[index], sources_, slot, lane.scratch(), runs);
    uint64_t bytes = 0;
    for (const Run& run : runs) {
      VCC_CU(cuMemcpyHtoDAsync(base_ + run.destination, slot + run.slot, run.bytes, lane.stream()));
      bytes += run.bytes;
    }
    bytes_.fetch_add(bytes);
    if (index == 0) first_.store(seconds_since(start_));
  }

  uint64_t bytes() const { return bytes_.load(); }
  double first() const { return first_.load(); }

 private:
  const Sources& sources_;
  const std::vector<Piece>& pieces_;
  const uint64_t base_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<uint64_t> bytes_{0};
  std::atomic<double> first_{0};
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
    vcc::Ring lanes(held, std::max(threads, 1u), slot_bytes);
    Upload upload(sources, pieces, base);
    vcc::Transfer(lanes, upload).finish();
    *bytes = upload.bytes();
    *first = upload.first();
    *ring = lanes.bytes();
    *seconds = seconds_since(start);
  });
}
