#include "player/io.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "abi/error.h"
#include "driver/driver.h"

namespace vcc {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr unsigned kPortable = 1;    // CU_MEMHOSTALLOC_PORTABLE
constexpr uint64_t kGap = 64 << 10;  // bytes that cost less to copy than another copy does

constexpr std::string_view kSampling[] = {"temperature", "top_p", "top_k", "seed",
                                          "request",     "step",  "active"};
constexpr std::string_view kToken = "token";

// 0: not written by the host.
uint32_t group_of(std::string_view name, table::Role role) {
  if (name == kToken) return kTokenInput;
  if (std::find(std::begin(kSampling), std::end(kSampling), name) != std::end(kSampling)) {
    return kSamplingInputs;
  }
  return role == table::Role::kInput ? uint32_t{kStepInputs} : 0;
}

uint64_t rounded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Pinned::Pinned(size_t bytes) : bytes_(bytes) {
  void* address = nullptr;
  VCC_CU(cuMemHostAlloc(&address, std::max<size_t>(bytes, 1), kPortable));
  data_ = static_cast<uint8_t*>(address);
}

Pinned::~Pinned() {
  if (data_ != nullptr) driver().cuMemFreeHost(data_);
}

Pinned::Pinned(Pinned&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Pinned& Pinned::operator=(Pinned&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

InputRing::InputRing(const Table& table, const Expander& expander, const std::vector<Place>& places,
                     uint32_t slots)
    : table_(table) {
  const auto& values = expander.largest();
  const auto& records = table.records();
  for (uint32_t i = 0; i < records.tensors.size(); ++i) {
    const auto& tensor = records.tensors[i];
    const uint32_t group = group_of(table.text(tensor.name), tensor.role);
    if (group == 0 || records.regions[tensor.region].kind != table::RegionKind::kIo) continue;
    const uint64_t address =
        places[tensor.region].address + static_cast<uint64_t>(values[tensor.offset]);
    inputs_.push_back(
        {i, static_cast<InputGroup>(group), 0, address, bytes_of(records, tensor, values)});
  }
  std::sort(inputs_.begin(), inputs_.end(),
            [](const Input& a, const Input& b) { return a.device < b.device; });
  const auto others_between = [&](uint64_t low, uint64_t high) {
    for (uint32_t i = 0; i < records.tensors.size(); ++i) {
      const auto& tensor = records.tensors[i];
      if (records.regions[tensor.region].kind != table::RegionKind::kIo) continue;
      const uint64_t address =
          places[tensor.region].address + static_cast<uint64_t>(values[tensor.offset]);
      if (address > low && address < high) return true;
    }
    return false;
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (i != 0) {
      // Equal gaps on both sides let neighbours go in one copy; nothing else may lie between.
      const Input& before = inputs_[i - 1];
      const uint64_t gap = inputs_[i].device - before.device, packed = rounded(before.bytes);
      const bool near = gap >= before.bytes && gap <= packed + kGap &&
                        !others_between(before.device, inputs_[i].device);
      inputs_[i].host = before.host + (near ? gap : packed + (packed == gap ? kAlignment : 0));
    }
    slot_bytes_ = std::max(slot_bytes_, rounded(inputs_[i].host + inputs_[i].bytes));
  }
  memory_ = Pinned(slot_bytes_ * slots);
  std::fill_n(memory_.data(), slot_bytes_ * slots, uint8_t{0});
  events_.resize(slots);
  for (CUevent& event : events_) VCC_CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
}

InputRing::~InputRing() {
  for (const CUevent event : events_) {
    if (event != nullptr) driver().cuEventDestroy(event);
  }
}

uint32_t InputRing::acquire() {
  const uint32_t slot = next_;
  wait_for(events_[slot]);
  next_ = (next_ + 1) % slots();
  return slot;
}

std::vector<InputCopy> InputRing::copies(uint32_t mask, const std::vector<int64_t>& values) const {
  std::vector<InputCopy> copies;
  for (const Input& input : inputs_) {
    if ((mask & input.group) == 0) continue;
    const uint64_t bytes =
        std::min(bytes_of(table_.records(), table_.tensors()[input.tensor], values), input.bytes);
    if (bytes == 0) continue;
    if (!copies.empty()) {
      InputCopy& last = copies.back();
      const uint64_t end = last.device + last.bytes;
      const bool parallel = input.device - last.device == input.host - last.host;
      const bool near = input.device - end <= kGap;
      // Another group's input that lies between must not be overwritten.
      const auto between = [&](const Input& other) {
        return other.device >= last.device && other.device < input.device &&
               (mask & other.group) == 0;
      };
      if (parallel && near && std::none_of(inputs_.begin(), inputs_.end(), between)) {
        last.bytes = input.device + bytes - last.device;
        continue;
      }
    }
    copies.push_back({input.host, input.device, bytes});
  }
  return copies;
}

void InputRing::send(uint32_t slot, const std::vector<InputCopy>& copies, CUstream stream) {
  for (const InputCopy& copy : copies) {
    VCC_CU(cuMemcpyHtoDAsync(copy.device, at(slot) + copy.host, copy.bytes, stream));
  }
  mark_used(slot, stream);
}

void InputRing::send_part(uint32_t slot, const Input& input, uint64_t offset, uint64_t bytes,
                          CUstream stream) {
  VCC_CU(cuMemcpyHtoDAsync(input.device + offset, at(slot) + input.host + offset, bytes, stream));
}

void InputRing::mark_used(uint32_t slot, CUstream stream) {
  VCC_CU(cuEventRecord(events_[slot], stream));
}

const Input* InputRing::find(std::string_view name) const {
  const auto found = std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& input) {
    return table_.text(table_.tensors()[input.tensor].name) == name;
  });
  return found == inputs_.end() ? nullptr : &*found;
}

void wait_for(CUevent event) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    const CUresult result = driver().cuEventQuery(event);
    if (result == CUDA_SUCCESS) return;
    if (result != CUDA_ERROR_NOT_READY) fail_call(result, "cuEventQuery(", __FILE__, __LINE__);
    // A step of some milliseconds is worth a core; a long one is not.
    if (std::chrono::steady_clock::now() - start > std::chrono::milliseconds(20)) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

}  // namespace vcc
