#include "driver.h"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <mutex>

#include "device.h"

namespace vcc {

namespace {

std::mutex loading;
std::atomic<const Driver*> loaded{nullptr};  // never freed: handles of others may outlive us
pid_t loader = 0;                            // guarded by `loading`

const CUresult kSticky[] = {
    CUDA_ERROR_DEINITIALIZED,
    CUDA_ERROR_DEVICE_UNAVAILABLE,
    CUDA_ERROR_ECC_UNCORRECTABLE,
    CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUDA_ERROR_CONTAINED,
    CUDA_ERROR_ILLEGAL_ADDRESS,
    CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_ASSERT,
    CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_MISALIGNED_ADDRESS,
    CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUDA_ERROR_INVALID_PC,
    CUDA_ERROR_LAUNCH_FAILED,

    CUDA_ERROR_UNKNOWN,
};

std::string dotted(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void* open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* said = dlerror();
  throw Error(Code::kDevice, "cannot use the CUDA driver library " + path,
              said == nullptr ? "it does not load" : said,
              "install NVIDIA's driver, or run on a machine that has one; VCC_LIBCUDA names "
              "another file");
}

// The function, or an error that names it and the first CUDA version that has them all.
void* find(void* library, const Driver& driver, const char* symbol) {
  void* found = dlsym(library, symbol);
  if (found != nullptr) return found;
  const std::string has =
      driver.version == 0 ? "" : " (this one is of CUDA " + dotted(driver.version) + ")";
  throw Error(Code::kDevice, "cannot use the CUDA driver library " + driver.path,
              std::string("it lacks ") + symbol + has,
              "install a driver of CUDA " + dotted(oldest_driver()) + " or later");
}

void initialise(const Driver& made) {
  const CUresult result = made.cuInit(0);
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  made.cuGetErrorName(result, &name);
  throw CudaError(
      result, "cannot use a CUDA device",
      std::string("cuInit: ") + (name == nullptr ? "" : name) + " (" + std::to_string(result) + ")",
      result == CUDA_ERROR_NO_DEVICE
          ? "check nvidia-smi, and that CUDA_VISIBLE_DEVICES names a device"
          : "check nvidia-smi");
}

std::unique_ptr<Driver> open_driver(const std::string& path) {
  void* library = open_library(path);
  auto made = std::make_unique<Driver>();
  made->path = path;
  if (void* version = dlsym(library, "cuDriverGetVersion"); version != nullptr) {
    reinterpret_cast<CUresult (*)(int*)>(version)(&made->version);
  }
#define VCC_CUDA_FIND(member, symbol, since, arguments) \
  made->member = reinterpret_cast<decltype(made->member)>(find(library, *made, #symbol));
  VCC_CUDA_FUNCTIONS(VCC_CUDA_FIND)
#undef VCC_CUDA_FIND
  initialise(*made);
  return made;
}

}  // namespace

const Driver& load_driver(const std::string& path) {
  const std::lock_guard lock(loading);
  const Driver* have = loaded.load();
  if (have == nullptr) {
    have = open_driver(path).release();
    loader = getpid();
    loaded.store(have);
  }
  if (have->path != path) {
    throw Error(Code::kUsage, "cannot use the CUDA driver library " + path,
                "this process uses " + have->path + " already");
  }
  if (loader != getpid()) {
    throw Error(Code::kDevice, "cannot use the CUDA device in this process",
                "process " + std::to_string(loader) + " used it, and was forked afterwards: CUDA " +
                    "does not work in the child",
                "start the child by spawn, or use the device in the child alone");
  }
  return *have;
}

const Driver& driver() {
  const Driver* have = loaded.load(std::memory_order_acquire);
  VCC_EXPECT(have != nullptr, "a CUDA call before a device was opened");
  return *have;
}

std::string cuda_error_name(CUresult result) {
  const char* name = nullptr;
  driver().cuGetErrorName(result, &name);
  return std::string(name == nullptr ? "unknown error" : name) + " (" + std::to_string(result) +
         ")";
}

bool is_sticky(CUresult result) {
  return std::find(std::begin(kSticky), std::end(kSticky), result) != std::end(kSticky);
}

void fail_call(CUresult result, const char* call, const char* file, int line) {
  const std::string name = std::string(call).substr(0, std::string(call).find('('));
  const std::string why = cuda_error_name(result) + " at " + file + ":" + std::to_string(line);
  std::string hint;
  if (is_sticky(result)) {
    lose_device_of_this_thread(name + ": " + cuda_error_name(result));
    hint = "the device's context is unusable now: start a new process";
  } else if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    hint = "free memory of the device, or use less of it";
  }
  throw CudaError(result, "the CUDA call " + name + " failed", why, hint);
}

}  // namespace vcc
