// What goes between host and device around a step: the ring of pinned input slots, and the pinned
// places of what comes back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver/cuda_types.h"
#include "player/expand.h"

namespace vcc {

// Pinned host memory.
class Pinned {
 public:
  Pinned() = default;
  explicit Pinned(size_t bytes);
  ~Pinned();
  Pinned(Pinned&& other) noexcept;
  Pinned& operator=(Pinned&& other) noexcept;

  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// Which inputs a step is given.
enum InputGroup : uint32_t { kStepInputs = 1, kSamplingInputs = 2, kTokenInput = 4 };

// An input tensor: where it lies in a slot and on the device, at its largest size.
struct Input {
  uint32_t tensor;  // of the table
  InputGroup group;
  uint64_t host;    // byte in a slot
  uint64_t device;  // address
  uint64_t bytes;
};

// A copy from a slot to the device.
struct InputCopy {
  uint64_t host;
  uint64_t device;
  uint64_t bytes;
};

// Slots of pinned memory with equal layout, used in turn: one is written while the copies of the
// others are still under way.
class InputRing {
 public:
  InputRing(const Table& table, const Expander& expander, const std::vector<Place>& places,
            uint32_t slots);
  ~InputRing();
  InputRing(const InputRing&) = delete;
  InputRing& operator=(const InputRing&) = delete;

  // The next slot, once nothing reads it any more.
  uint32_t acquire();
  // Copies that bring the groups of `mask` to the device at these values of the expressions. Near
  // neighbours go in one copy.
  std::vector<InputCopy> copies(uint32_t mask, const std::vector<int64_t>& values) const;
  // Queue copies from a slot; it is taken until they are done.
  void send(uint32_t slot, const std::vector<InputCopy>& copies, CUstream stream);
  // Queue rows [row, row + 1) of one input.
  void send_part(uint32_t slot, const Input& input, uint64_t offset, uint64_t bytes,
                 CUstream stream);
  void mark_used(uint32_t slot, CUstream stream);

  uint8_t* at(uint32_t slot) const { return memory_.data() + slot * slot_bytes_; }
  uint32_t slots() const { return static_cast<uint32_t>(events_.size()); }
  uint64_t slot_bytes() const { return slot_bytes_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  // By name of the tensor; nullptr when the table has none.
  const Input* find(std::string_view name) const;

 private:
  const Table& table_;
  std::vector<Input> inputs_;  // in the order of their addresses
  uint64_t slot_bytes_ = 0;
  Pinned memory_;
  std::vector<CUevent> events_;
  uint32_t next_ = 0;
};

// Spin until the stream is empty or the event is over; a failed kernel is thrown.
void wait_for(CUevent event);

}  // namespace vcc
