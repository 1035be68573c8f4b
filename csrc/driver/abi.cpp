#include "abi.h"

#include "abi/handles.h"
#include "driver/device.h"

namespace vcc {

namespace {

Handles<Device>& devices() {
  static auto* table = new Handles<Device>("device");  // never freed: threads may outlive main
  return *table;
}

}  // namespace

std::shared_ptr<Device> device_of(uint64_t handle) { return devices().get(handle); }

}  // namespace vcc

using vcc::guarded;

int32_t vcc_device_open(const char* path, int32_t ordinal, uint64_t* device) {
  return guarded(
      [&] { *device = vcc::devices().add(std::make_shared<vcc::Device>(path, ordinal)); });
}

int32_t vcc_device_close(uint64_t device) {
  return guarded([&] { vcc::devices().remove(device); });
}

int32_t vcc_device_info(uint64_t device, const char** json) {
  return guarded([&] { *json = vcc::keep_text(vcc::device_of(device)->info()); });
}

int32_t vcc_device_synchronize(uint64_t device) {
  return guarded([&] {
    vcc::device_of(device)->use();
    VCC_CU(cuCtxSynchronize());
  });
}

int32_t vcc_device_write(uint64_t device, uint64_t address, const void* data, uint64_t size) {
  return guarded([&] {
    vcc::device_of(device)->use();
    VCC_CU(cuMemcpyHtoD(address, data, size));
  });
}

int32_t vcc_device_read(uint64_t device, uint64_t address, void* data, uint64_t size) {
  return guarded([&] {
    vcc::device_of(device)->use();
    VCC_CU(cuMemcpyDtoH(data, address, size));
  });
}

int32_t vcc_device_fill(uint64_t device, uint64_t address, uint32_t byte, uint64_t size) {
  return guarded([&] {
    vcc::device_of(device)->use();
    VCC_CU(cuMemsetD8Async(address, static_cast<unsigned char>(byte), size, nullptr));
    VCC_CU(cuStreamSynchronize(nullptr));
  });
}
