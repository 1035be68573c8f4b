#include "device.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vcc {

namespace {

thread_local std::shared_ptr<Device::Health> used;  // of the device that this thread used last

struct Named {
  const char* name;
  CUdevice_attribute id;
};

const Named kNumbers[] = {
    {"multiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"warp_size", CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {"threads_per_block", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {"threads_per_multiprocessor", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {"registers_per_multiprocessor", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {"shared_per_block", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {"shared_per_block_optin", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {"shared_per_multiprocessor", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
    {"l2_bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {"memory_bus_bits", CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH},
    {"memory_clock_khz", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {"clock_khz", CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {"ecc", CU_DEVICE_ATTRIBUTE_ECC_ENABLED},
    {"integrated", CU_DEVICE_ATTRIBUTE_INTEGRATED},
    {"virtual_memory", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
};

std::string visible_devices() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? "" : value;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string uuid_text(const CUuuid& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char pair[3];
    std::snprintf(pair, sizeof pair, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += pair;
  }
  return text;
}

[[noreturn]] void refuse_ordinal(int ordinal, int count) {
  const std::string visible = visible_devices();
  throw Error(Code::kDevice, "cannot use CUDA device " + std::to_string(ordinal),
              "this process sees " + std::to_string(count) +
                  (visible.empty() ? "" : " (CUDA_VISIBLE_DEVICES=" + visible + ")"),
              count == 0 ? "check nvidia-smi, and that CUDA_VISIBLE_DEVICES names a device"
                         : "use 0 to " + std::to_string(count - 1));
}

}  // namespace

Device::Device(const std::string& driver_path, int ordinal)
    : ordinal_(ordinal), process_(getpid()) {
  load_driver(driver_path);
  int count = 0;
  VCC_CU(cuDeviceGetCount(&count));
  if (ordinal < 0 || ordinal >= count) refuse_ordinal(ordinal, count);
  VCC_CU(cuDeviceGet(&id_, ordinal));
  char name[256] = {};
  VCC_CU(cuDeviceGetName(name, sizeof name - 1, id_));
  name_ = name;
  VCC_CU(cuDeviceTotalMem(&memory_, id_));
  capability_ = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  VCC_CU(cuDevicePrimaryCtxRetain(&context_, id_));
}

Device::~Device() {
  // In a forked child the driver must not be called at all.
  if (getpid() == process_) driver().cuDevicePrimaryCtxRelease(id_);
}

void Device::use() {
  if (getpid() != process_) [[unlikely]] {
    throw Error(Code::kDevice, "cannot use the CUDA device in this process",
                "it was opened by process " + std::to_string(process_) +
                    ", which was forked afterwards: CUDA does not work in the child",
                "start the child by spawn, or load in the child");
  }
  if (lost()) [[unlikely]] {
    const std::lock_guard lock(health_->lock);
    throw Error(Code::kDevice, "the CUDA device is lost", health_->reason,
                "a kernel failed earlier and the context is unusable: start a new process");
  }
  if (used != health_) used = health_;
  VCC_CU(cuCtxSetCurrent(context_));
}

void Device::Health::lose(const std::string& why) {
  const std::lock_guard guard(lock);
  if (reason.empty()) reason = why;
  lost.store(true, std::memory_order_release);
}

void lose_device_of_this_thread(const std::string& reason) {
  if (used) used->lose(reason);
}

int Device::attribute(CUdevice_attribute id) const {
  int value = 0;
  VCC_CU(cuDeviceGetAttribute(&value, id, id_));
  return value;
}

std::string Device::info() {
  use();
  CUuuid uuid = {};
  VCC_CU(cuDeviceGetUuid(&uuid, id_));
  size_t free = 0, total = 0;
  VCC_CU(cuMemGetInfo(&free, &total));
  const std::string visible = visible_devices();
  const bool slice =
      name_.find(" MIG ") != std::string::npos || visible.find("MIG-") != std::string::npos;
  std::string text =
      "{\"name\": " + quoted(name_) + ", \"arch\": \"sm_" + std::to_string(capability_) +
      "\", \"uuid\": " + quoted(uuid_text(uuid)) + ", \"ordinal\": " + std::to_string(ordinal_) +
      ", \"driver\": " + std::to_string(driver().version) +
      ", \"memory\": " + std::to_string(memory_) + ", \"free_memory\": " + std::to_string(free) +
      ", \"visible_devices\": " + quoted(visible) + ", \"mig\": " + (slice ? "true" : "false");
  for (const Named& number : kNumbers) {
    text += std::string(", \"") + number.name + "\": " + std::to_string(attribute(number.id));
  }
  return text + "}";
}

}  // namespace vcc
