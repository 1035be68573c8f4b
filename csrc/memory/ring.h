// A ring of pinned host memory between the host's pages and a device, moved by several threads: the
// link is faster than one thread can copy, and pinning memory is slower than either.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "driver/device.h"

namespace vcc {

// The part of a ring that one thread uses: pinned slots and a stream.
class Lane {
 public:
  static constexpr size_t kSlots = 2;  // the host works on one while the other is on its way
  static constexpr size_t kNone = SIZE_MAX;

  struct Slot {
    char* memory = nullptr;
    CUevent over = nullptr;
    size_t piece = kNone;  // what was begun in it
  };

  // Pin two slots. Throws kDevice.
  Lane(std::shared_ptr<Device> device, size_t slot_bytes);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // The slot whose turn it is, when what was begun in it is over. Throws kDevice.
  Slot& turn();

  // A piece was begun in the slot whose turn it is; it is the other one's turn now.
  void begun(size_t piece);
  void pass() { next_ = (next_ + 1) % kSlots; }

  // Wait for everything, whatever became of it; all slots are free then.
  void settle() noexcept;

  CUstream stream() const { return stream_; }
  char* scratch();  // as many bytes as a slot, not pinned

 private:
  void release() noexcept;

  std::shared_ptr<Device> device_;
  size_t slot_bytes_;
  std::unique_ptr<char[]> scratch_;
  CUstream stream_ = nullptr;
  char* pinned_ = nullptr;
  Slot slots_[kSlots];
  size_t next_ = 0;
};

// Lanes, made by the thread that first uses them and kept for the next transfer.
class Ring {
 public:
  // 0 threads: as many as the machine has processors, at most 16.
  Ring(std::shared_ptr<Device> device, uint32_t threads, size_t slot_bytes);

  Lane& lane(size_t index);
  Device& device() const { return *device_; }
  size_t threads() const { return lanes_.size(); }
  size_t slot_bytes() const { return slot_bytes_; }
  size_t bytes() const;  // pinned; not while a transfer runs

 private:
  std::shared_ptr<Device> device_;
  size_t slot_bytes_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

// What a transfer moves: pieces that fit a slot.
class Pieces {
 public:
  virtual ~Pieces() = default;
  virtual size_t count() const = 0;

  // Fill the slot and send it, or receive into it; copies go to the lane's stream.
  virtual void begin(size_t piece, Lane& lane, char* slot) = 0;

  // What was begun in the slot is over.
  virtual void end(size_t, const char*) {}
};

// Where the time of a transfer went: seconds, of all threads together.
struct TransferTimes {
  double host = 0;  // copying, reading, and getting pages
  double link = 0;  // waiting for copies between slot and device
};

// Moves pieces in order by the threads of a ring. The first error ends it.
class Transfer {
 public:
  // Pieces wait for `open`. Where threads cannot be had it is slower, not wrong.
  Transfer(Ring& ring, Pieces& pieces);
  ~Transfer();  // of one that was not finished: waits for what was begun
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Pieces below this number may begin.
  void open(size_t limit);

  // Open all, take part, and return when everything has arrived. Throws the first error.
  void finish();

  TransferTimes times() const { return times_; }

 private:
  bool claim(size_t* piece);
  void work(size_t lane_index) noexcept;
  void move(Lane& lane, size_t piece, TransferTimes& times);
  char* ready(Lane& lane, TransferTimes& times);
  bool ended_early();
  void keep_error() noexcept;
  void join() noexcept;

  Ring& ring_;
  Pieces& pieces_;
  std::vector<std::thread> threads_;
  std::mutex lock_;
  std::condition_variable opened_;
  size_t count_;
  size_t open_ = 0;
  size_t next_ = 0;
  bool stopped_ = false;
  std::exception_ptr error_;
  TransferTimes times_;
};

}  // namespace vcc
