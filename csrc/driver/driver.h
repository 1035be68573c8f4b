// libcuda by dlopen: a table of functions, and the check that turns a failed call into an Error.
#pragma once

#include <string>

#include "abi/error.h"
#include "driver/cuda_types.h"
#include "driver/functions.h"

namespace vcc {

struct Driver {
#define VCC_CUDA_MEMBER(member, symbol, since, arguments) CUresult(*member) arguments = nullptr;
  VCC_CUDA_FUNCTIONS(VCC_CUDA_MEMBER)
#undef VCC_CUDA_MEMBER
  int version = 0;   // as cuDriverGetVersion says: 13000 for CUDA 13.0
  std::string path;  // as it was asked for
};

// Load the driver library once for the process and initialise it. The same path again does nothing.
// Throws kDevice: missing, too old for a function (which is named), no device; kUsage: another
// path.
const Driver& load_driver(const std::string& path);

// The loaded driver. A broken rule (kInternal) when load_driver did not succeed before.
const Driver& driver();

// A failed driver call.
class CudaError : public Error {
 public:
  CudaError(CUresult result, std::string what, std::string why, std::string hint)
      : Error(Code::kDevice, std::move(what), std::move(why), std::move(hint)), result(result) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) kind = kShortage;
  }
  CUresult result;
};

// "CUDA_ERROR_OUT_OF_MEMORY (2)"
std::string cuda_error_name(CUresult result);

// True for errors after which the context can do nothing more.
bool is_sticky(CUresult result);

// Throw the CudaError of a call. A sticky error marks the device of this thread as lost (device.h).
[[noreturn]] void fail_call(CUresult result, const char* call, const char* file, int line);

}  // namespace vcc

// VCC_CU(cuMemFree(address)): the call through the table; throws when it fails.
#define VCC_CU(call)                                              \
  do {                                                            \
    const ::vcc::CUresult vcc_cu_result = ::vcc::driver().call;   \
    if (vcc_cu_result != ::vcc::CUDA_SUCCESS) [[unlikely]]        \
      ::vcc::fail_call(vcc_cu_result, #call, __FILE__, __LINE__); \
  } while (0)
