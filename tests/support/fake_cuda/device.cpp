// Devices and contexts of the double. VCC_FAKE_DEVICES, VCC_FAKE_NAME, VCC_FAKE_CAPABILITY (90),
// VCC_FAKE_DRIVER (13000), VCC_FAKE_MEMORY (bytes) say what there is.
#include <cstdio>
#include <cstring>

#include "fake.h"

namespace fake {

bool initialised = false;
thread_local CUcontext current = nullptr;

namespace {

std::map<int, int> retained;  // primary contexts by device

int devices() { return static_cast<int>(number("VCC_FAKE_DEVICES", 1)); }

CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(0x1000L + device); }

const std::map<int, int>& attributes() {
  static const std::map<int, int> table = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
      {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, capability() / 10},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, capability() % 10},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
       static_cast<int>(number("VCC_FAKE_VIRTUAL_MEMORY", 1))},
  };
  return table;
}

const std::map<int, const char*>& names() {
  static const std::map<int, const char*> table = {
      {0, "CUDA_SUCCESS"},
      {1, "CUDA_ERROR_INVALID_VALUE"},
      {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {3, "CUDA_ERROR_NOT_INITIALIZED"},
      {100, "CUDA_ERROR_NO_DEVICE"},
      {101, "CUDA_ERROR_INVALID_DEVICE"},
      {200, "CUDA_ERROR_INVALID_IMAGE"},
      {201, "CUDA_ERROR_INVALID_CONTEXT"},
      {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {400, "CUDA_ERROR_INVALID_HANDLE"},
      {500, "CUDA_ERROR_NOT_FOUND"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {719, "CUDA_ERROR_LAUNCH_FAILED"},
      {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {999, "CUDA_ERROR_UNKNOWN"},
  };
  return table;
}

bool valid(CUdevice device) { return device >= 0 && device < devices(); }

}  // namespace

int capability() { return static_cast<int>(number("VCC_FAKE_CAPABILITY", 90)); }

bool known_context(CUcontext context) {
  const long device = reinterpret_cast<long>(context) - 0x1000L;
  const auto found = retained.find(static_cast<int>(device));
  return context != nullptr && found != retained.end() && found->second > 0;
}

}  // namespace fake

using namespace fake;

#define ENTER(name, needs)             \
  const std::lock_guard guard(lock()); \
  if (const CUresult refused = enter(name, needs)) return refused

FAKE_API CUresult cuInit(unsigned) {
  ENTER("cuInit", Needs::kInit);
  if (devices() == 0) return CUDA_ERROR_NO_DEVICE;
  initialised = true;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDriverGetVersion(int* version) {
  ENTER("cuDriverGetVersion", Needs::kNothing);
  *version = static_cast<int>(number("VCC_FAKE_DRIVER", 13000));
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGetErrorName(CUresult result, const char** name) {
  const auto found = names().find(result);
  *name = found == names().end() ? nullptr : found->second;
  return found == names().end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

FAKE_API CUresult cuGetErrorString(CUresult result, const char** text) {
  return cuGetErrorName(result, text);
}

FAKE_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  ENTER("cuDeviceGet", Needs::kInit);
  if (!valid(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetCount(int* count) {
  ENTER("cuDeviceGetCount", Needs::kInit);
  *count = devices();
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  ENTER("cuDeviceGetName", Needs::kInit);
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(size), "%s",
                setting("VCC_FAKE_NAME", "Fake H200").c_str());
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  ENTER("cuDeviceGetUuid", Needs::kInit);
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(16 * device + i);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  ENTER("cuDeviceTotalMem", Needs::kInit);
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = static_cast<size_t>(number("VCC_FAKE_MEMORY", 1LL << 30));
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  ENTER("cuDeviceGetAttribute", Needs::kInit);
  const auto found = attributes().find(attribute);
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (found == attributes().end()) return CUDA_ERROR_INVALID_VALUE;
  *value = found->second;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ENTER("cuDevicePrimaryCtxRetain", Needs::kInit);
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  ++retained[device];
  *context = context_of(device);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER("cuDevicePrimaryCtxRelease", Needs::kInit);
  if (retained[device] == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --retained[device];
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER("cuCtxSetCurrent", Needs::kInit);
  if (context != nullptr && !known_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  current = context;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxGetCurrent(CUcontext* context) {
  ENTER("cuCtxGetCurrent", Needs::kInit);
  *context = current;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxSynchronize() {
  ENTER("cuCtxSynchronize", Needs::kContext);
  return any_capture() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
