#include "host_copy.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace vcc {

namespace {

// Copied at a time: below the size from which memcpy goes around the caches. The device reads a
// slot faster from there.
constexpr size_t kThroughCaches = size_t{256} << 10;

size_t sum(const HostCopy::Places& places) {
  return std::accumulate(places.begin(), places.end(), size_t{0},
                         [](size_t left, const auto& place) { return left + place.second; });
}

}  // namespace

// Device to host memory.
class HostCopy::Receiving : public Pieces {
 public:
  explicit Receiving(HostCopy& copy) : copy_(copy) {}

  size_t count() const override { return copy_.pieces_.size(); }

  void begin(size_t index, Lane& lane, char* slot) override {
    const Piece& piece = copy_.pieces_[index];
    for (size_t i = 0, at = 0; i < piece.runs; ++i) {
      const Run& run = copy_.runs_[piece.first_run + i];
      VCC_CU(cuMemcpyDtoHAsync(slot + at, run.device, run.size, lane.stream()));
      at += run.size;
    }
    copy_.memory_.populate(piece.offset, piece.size);  // while the copy is on its way
  }

  void end(size_t index, const char* slot) override {
    const Piece& piece = copy_.pieces_[index];
    std::memcpy(copy_.memory_.data() + piece.offset, slot, piece.size);
  }

 private:
  HostCopy& copy_;
};

// Host memory to device.
class HostCopy::Return::Sending : public Pieces {
 public:
  explicit Sending(const HostCopy& copy) : copy_(copy) {}

  size_t count() const override { return copy_.pieces_.size(); }

  void begin(size_t index, Lane& lane, char* slot) override {
    const Piece& piece = copy_.pieces_[index];
    const char* from = copy_.memory_.data() + piece.offset;
    for (size_t at = 0; at < piece.size; at += kThroughCaches) {
      std::memcpy(slot + at, from + at, std::min(kThroughCaches, piece.size - at));
    }
    for (size_t i = 0, at = 0; i < piece.runs; ++i) {
      const Run& run = copy_.runs_[piece.first_run + i];
      if (run.present) VCC_CU(cuMemcpyHtoDAsync(run.device, slot + at, run.size, lane.stream()));
      at += run.size;
    }
  }

 private:
  const HostCopy& copy_;
};

HostCopy::HostCopy(Ring& ring, const Places& places, TransferTimes& times) : memory_(sum(places)) {
  cut(places, ring.slot_bytes());
  Receiving receiving(*this);
  Transfer transfer(ring, receiving);
  transfer.finish();
  times.host += transfer.times().host;
  times.link += transfer.times().link;
}

HostCopy::~HostCopy() = default;

void HostCopy::cut(const Places& places, size_t slot_bytes) {
  size_t offset = 0;
  for (const auto& [device, size] : places) {
    for (size_t done = 0; done < size;) {
      if (pieces_.empty() || pieces_.back().size == slot_bytes) {
        pieces_.push_back({runs_.size(), 0, offset, 0});
      }
      Piece& piece = pieces_.back();
      const size_t part = std::min(size - done, slot_bytes - piece.size);
      runs_.push_back({device + done, part, true});
      ++piece.runs;
      piece.size += part;
      offset += part;
      done += part;
    }
  }
}

void HostCopy::forget(CUdeviceptr from, size_t size) {
  for (Run& run : runs_) {
    if (run.device - from < size) run.present = false;
  }
}

HostCopy::Return::Return(HostCopy& copy, Ring& ring)
    : copy_(copy), sending_(std::make_unique<Sending>(copy)), transfer_(ring, *sending_) {}

HostCopy::Return::~Return() = default;

void HostCopy::Return::open_below(CUdeviceptr limit) {
  const auto& pieces = copy_.pieces_;
  for (; open_ < pieces.size(); ++open_) {
    const Run& last = copy_.runs_[pieces[open_].first_run + pieces[open_].runs - 1];
    if (last.device + last.size > limit) break;
  }
  transfer_.open(open_);
}

TransferTimes HostCopy::Return::finish() {
  transfer_.finish();
  return transfer_.times();
}

}  // namespace vcc
