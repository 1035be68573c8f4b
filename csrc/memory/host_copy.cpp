#include "host_copy.h"

#include <algorithm>

namespace vcc {

namespace {

constexpr size_t kBuffer = size_t{512} << 20;  // pinned at a time
constexpr size_t kPiece = size_t{32} << 20;    // copied at a time, in turn on the streams
constexpr size_t kStreams = 2;

}  // namespace

HostCopy::HostCopy(std::shared_ptr<Device> device, const Places& places)
    : device_(std::move(device)) {
  try {
    for (size_t i = 0; i < kStreams; ++i) {
      CUstream stream = nullptr;
      VCC_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      streams_.push_back(stream);
    }
    pin(places);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      VCC_CU(cuMemcpyDtoHAsync(piece.host, piece.device, piece.size, streams_[i % kStreams]));
    }
    wait();
  } catch (...) {
    release();
    throw;
  }
}

HostCopy::~HostCopy() { release(); }

void HostCopy::pin(const Places& places) {
  size_t left = 0;
  for (const auto& [_, size] : places) left += size;
  char* at = nullptr;
  size_t room = 0;
  for (const auto& [device, size] : places) {
    for (size_t done = 0; done < size;) {
      if (room == 0) {
        void* buffer = nullptr;
        room = std::min(left, kBuffer);
        VCC_CU(cuMemHostAlloc(&buffer, room, kHostAllocPortable));
        buffers_.push_back(buffer);
        at = static_cast<char*>(buffer);
      }
      const size_t part = std::min({size - done, room, kPiece});
      pieces_.push_back({device + done, at, part});
      done += part;
      at += part;
      room -= part;
      left -= part;
      bytes_ += part;
    }
  }
}

void HostCopy::start_below(CUdeviceptr limit) {
  for (; next_ < pieces_.size(); ++next_) {
    const Piece& piece = pieces_[next_];
    if (piece.device + piece.size > limit) return;
    VCC_CU(cuMemcpyHtoDAsync(piece.device, piece.host, piece.size, streams_[next_ % kStreams]));
  }
}

void HostCopy::wait() {
  for (const CUstream stream : streams_) VCC_CU(cuStreamSynchronize(stream));
}

void HostCopy::settle() noexcept {
  for (const CUstream stream : streams_) driver().cuStreamSynchronize(stream);
}

void HostCopy::rewind() { next_ = 0; }

void HostCopy::forget(CUdeviceptr from, size_t size) {
  std::erase_if(pieces_, [&](const Piece& piece) { return piece.device - from < size; });
}

void HostCopy::release() noexcept {
  if (device_->lost()) return;
  settle();
  for (const CUstream stream : streams_) driver().cuStreamDestroy(stream);
  for (void* buffer : buffers_) driver().cuMemFreeHost(buffer);
}

}  // namespace vcc
