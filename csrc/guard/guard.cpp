// A no-op guard for CUDA devices: with it a torch build without CUDA makes fake CUDA tensors, which
// have a device type and no memory, so that code for a GPU is compiled on a machine without one.
// Loading the library puts the guard in place, unless the build has one of its own.
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

using c10::DeviceType;

c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> guard;

const bool placed = [] {
  auto& slot = c10::impl::device_guard_impl_registry[static_cast<std::size_t>(DeviceType::CUDA)];
  if (slot.load() == nullptr) slot.store(&guard);
  return true;
}();

}  // namespace
