#include "launch.h"

#include <dlfcn.h>
#include <torch/csrc/stable/accelerator.h>

#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "../../driver/cuda_types.h"
#include "../check.h"

namespace vcc::cuda {
namespace {

// The few functions that a launch needs; the player's table has all of its own.
struct Driver {
  CUresult (*cuInit)(unsigned) = nullptr;
  CUresult (*cuCtxGetCurrent)(CUcontext*) = nullptr;
  CUresult (*cuDeviceGet)(CUdevice*, int) = nullptr;
  CUresult (*cuDeviceGetAttribute)(int*, CUdevice_attribute, CUdevice) = nullptr;
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*cuCtxSetCurrent)(CUcontext) = nullptr;
  CUresult (*cuModuleLoadData)(CUmodule*, const void*) = nullptr;
  CUresult (*cuModuleGetFunction)(CUfunction*, CUmodule, const char*) = nullptr;
  CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream, void**, void**) = nullptr;
  CUresult (*cuGetErrorName)(CUresult, const char**) = nullptr;
};

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  STD_TORCH_CHECK(function != nullptr, "vcc: libcuda.so.1 lacks ", name);
}

std::string& driver_path() {
  static auto* path = new std::string("libcuda.so.1");
  return *path;
}

const Driver& driver() {
  static const Driver found = [] {
    void* library = dlopen(driver_path().c_str(), RTLD_NOW | RTLD_LOCAL);
    STD_TORCH_CHECK(library != nullptr, "vcc: no CUDA driver: ", dlerror());
    Driver d;
    find(library, "cuInit", d.cuInit);
    find(library, "cuCtxGetCurrent", d.cuCtxGetCurrent);
    find(library, "cuDeviceGet", d.cuDeviceGet);
    find(library, "cuDeviceGetAttribute", d.cuDeviceGetAttribute);
    find(library, "cuDevicePrimaryCtxRetain", d.cuDevicePrimaryCtxRetain);
    find(library, "cuCtxSetCurrent", d.cuCtxSetCurrent);
    find(library, "cuModuleLoadData", d.cuModuleLoadData);
    find(library, "cuModuleGetFunction", d.cuModuleGetFunction);
    find(library, "cuLaunchKernel", d.cuLaunchKernel);
    find(library, "cuGetErrorName", d.cuGetErrorName);
    const CUresult result = d.cuInit(0);
    STD_TORCH_CHECK(result == CUDA_SUCCESS, "vcc: cuInit failed with ", static_cast<int>(result));
    return d;
  }();
  return found;
}

void check(CUresult result, const char* call, const char* op) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  driver().cuGetErrorName(result, &name);
  STD_TORCH_CHECK(false, "vcc::", op, ": ", call, " failed: ", name == nullptr ? "?" : name, " (",
                  static_cast<int>(result), ")");
}

std::mutex lock;                              // of what follows
using Key = std::pair<std::string, int64_t>;  // operator and architecture
std::map<Key, std::vector<char>>& cubins() {
  static auto* all = new std::map<Key, std::vector<char>>;  // outlives every caller
  return *all;
}
struct Loaded {
  CUmodule module = nullptr;
  std::map<std::string, CUfunction> functions;
};
std::map<std::pair<CUcontext, std::string>, Loaded>& modules() {
  static auto* all = new std::map<std::pair<CUcontext, std::string>, Loaded>;
  return *all;
}

// torch's context is current once it has used the device; in a fresh thread it may not be yet.
CUcontext context_of(int32_t device, const char* op) {
  CUcontext context = nullptr;
  check(driver().cuCtxGetCurrent(&context), "cuCtxGetCurrent", op);
  if (context != nullptr) return context;
  CUdevice id = 0;
  check(driver().cuDeviceGet(&id, device), "cuDeviceGet", op);
  check(driver().cuDevicePrimaryCtxRetain(&context, id), "cuDevicePrimaryCtxRetain", op);
  check(driver().cuCtxSetCurrent(context), "cuCtxSetCurrent", op);
  return context;
}

int64_t architecture_of(int32_t device, const char* op) {
  CUdevice id = 0;
  int major = 0, minor = 0;
  check(driver().cuDeviceGet(&id, device), "cuDeviceGet", op);
  check(driver().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, id),
        "cuDeviceGetAttribute", op);
  check(driver().cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, id),
        "cuDeviceGetAttribute", op);
  return 10 * major + minor;
}

CUfunction function_of(const char* op, const std::string& symbol, int32_t device) {
  const std::lock_guard guard(lock);
  Loaded& loaded = modules()[{context_of(device, op), op}];
  if (loaded.module == nullptr) {
    const int64_t arch = architecture_of(device, op);
    const auto found = cubins().find({op, arch});
    STD_TORCH_CHECK(found != cubins().end(), "vcc::", op, " has no CUDA kernel for sm_", arch,
                    " in this install; vcc doctor tells why");
    check(driver().cuModuleLoadData(&loaded.module, found->second.data()), "cuModuleLoadData", op);
  }
  CUfunction& function = loaded.functions[symbol];
  if (function == nullptr) {
    check(driver().cuModuleGetFunction(&function, loaded.module, symbol.c_str()),
          "cuModuleGetFunction", op);
  }
  return function;
}

// The shim of libtorch_cuda, which a torch for the CPU does not have: looked up, not linked.
CUstream stream_of(int32_t device) {
  using Shim = int32_t (*)(int32_t, void**);
  static const Shim shim = [] {
    void* library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    void* found =
        library == nullptr ? nullptr : dlsym(library, "aoti_torch_get_current_cuda_stream");
    return reinterpret_cast<Shim>(found);
  }();
  STD_TORCH_CHECK(shim != nullptr, "vcc: this torch has no CUDA stream to launch on");
  void* stream = nullptr;
  STD_TORCH_CHECK(shim(device, &stream) == 0, "vcc: torch gave no current CUDA stream");
  return static_cast<CUstream>(stream);
}

std::string text_of(const Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

}  // namespace

void add_kernel(const Tensor& op, int64_t arch, const Tensor& cubin) {
  const std::string code = text_of(cubin);
  const std::lock_guard guard(lock);
  cubins().try_emplace({text_of(op), arch}, code.begin(), code.end());
}

void use_driver(const Tensor& path) {
  const std::lock_guard guard(lock);
  driver_path() = text_of(path);
}

uint64_t& Launch::next() {
  STD_TORCH_CHECK(count_ < words_.size(), "vcc::", op_, ": too many parameters");
  return words_[count_++];
}

Launch& Launch::tensor(const Tensor& t) {
  next() = reinterpret_cast<uint64_t>(t.data_ptr());
  return *this;
}

Launch& Launch::i32(int64_t value) {
  STD_TORCH_CHECK(value >= 0 && value <= std::numeric_limits<int32_t>::max(), "vcc::", op_, ": ",
                  value, " does not fit the kernel's 32 bits");
  next() = static_cast<uint64_t>(value);
  return *this;
}

Launch& Launch::i64(int64_t value) {
  next() = static_cast<uint64_t>(value);
  return *this;
}

Launch& Launch::f32(double value) {
  const auto narrow = static_cast<float>(value);
  std::memcpy(&next(), &narrow, sizeof narrow);
  return *this;
}

void Launch::run(const std::string& symbol, int64_t blocks, int threads, const Tensor& on) {
  if (blocks == 0) return;
  STD_TORCH_CHECK(blocks <= std::numeric_limits<int32_t>::max(), "vcc::", op_, ": ", blocks,
                  " blocks are more than a grid has");
  std::optional<torch::stable::accelerator::DeviceGuard> guard;
  const int32_t device = on.is_cpu() ? 0 : on.get_device_index();
  if (!on.is_cpu()) guard.emplace(device);
  const CUfunction function = function_of(op_, symbol, device);
  std::array<void*, 32> parameters{};
  for (size_t i = 0; i < count_; ++i) parameters[i] = &words_[i];
  // Tensors of the CPU come from the tests' double of the driver only.
  const CUstream stream = on.is_cpu() ? nullptr : stream_of(device);
  check(driver().cuLaunchKernel(function, static_cast<unsigned>(blocks), 1, 1,
                                static_cast<unsigned>(threads), 1, 1, 0, stream, parameters.data(),
                                nullptr),
        "cuLaunchKernel", op_);
}

}  // namespace vcc::cuda
