// A no-op guard for CUDA devices, so that fake CUDA tensors can be made by a torch build without
// CUDA. Nothing here touches a device: a fake tensor has a device type and no memory.
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> guard;
}

// Returns 1 when the guard was put in place, 0 when the build has one of its own.
extern "C" int vcc_probe_install_guard() {
  auto& slot =
      c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::DeviceType::CUDA)];
  if (slot.load() != nullptr) return 0;
  slot.store(&guard);
  return 1;
}
