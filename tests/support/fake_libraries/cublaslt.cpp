// A double of cuBLASLt over the double of libcuda: a product is a launch of `lt_main`, of a cubin
// that VCC_FAKE_LT_CUBIN names. VCC_FAKE_LT says what a product does besides:
//   split   a second kernel, behind a programmatic edge, reads the workspace
//   hidden  a parameter holds an address shifted by four bits
//   stack   a parameter holds an address of the stack, heap one of the heap, unwritten nothing
//   host    a callback on the host
//   wrong   computed directly, the result is filled; the kernels of the double fill nothing
//   none    there is no algorithm
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "driver/cuda_types.h"

#define API extern "C" __attribute__((visibility("default")))

using namespace vcc;

namespace {

bool mode(const char* name) {
  const char* set = std::getenv("VCC_FAKE_LT");
  return set != nullptr && std::strcmp(set, name) == 0;
}

template <class Function>
Function of_driver(const char* name) {
  static void* const library = dlopen(std::getenv("VCC_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(dlsym(library, name));
}

struct Layout {
  uint64_t rows, columns;
};

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

CUfunction function(const char* name) {
  static CUmodule module = nullptr;
  if (module == nullptr) {  // at the first product, as the real library does
    std::FILE* file = std::fopen(std::getenv("VCC_FAKE_LT_CUBIN"), "rb");
    std::vector<char> image(1 << 20);
    const size_t size = std::fread(image.data(), 1, image.size(), file);
    std::fclose(file);
    image.resize(size);
    of_driver<CUresult (*)(CUmodule*, const void*)>("cuModuleLoadData")(&module, image.data());
  }
  CUfunction found = nullptr;
  of_driver<CUresult (*)(CUfunction*, CUmodule, const char*)>("cuModuleGetFunction")(&found, module,
                                                                                     name);
  return found;
}

int launch(const char* name, CUstream stream, void** parameters, unsigned rows) {
  using Launch = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void**, void**);
  return of_driver<Launch>("cuLaunchKernel")(function(name), rows, 1, 1, 128, 1, 1, 0, stream,
                                             parameters, nullptr);
}

bool capturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  of_driver<CUresult (*)(CUstream, CUstreamCaptureStatus*)>("cuStreamIsCapturing")(stream, &status);
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

void nothing(void*) {}

// What the stack held before.
__attribute__((noinline)) uint64_t unwritten() {
  volatile uint64_t words[64];
  return words[32];
}

uint64_t last_parameter(const void* d) {
  static const int* const kept = new int;
  int local = 0;
  if (mode("hidden")) return reinterpret_cast<uint64_t>(d) >> 4;
  if (mode("stack")) return reinterpret_cast<uint64_t>(&local);
  if (mode("heap")) return reinterpret_cast<uint64_t>(kept);
  return mode("unwritten") ? unwritten() : 7;
}

// Half of a structure is written: the other half is what was on the heap before.
struct Partly {
  uint32_t rows;
  uint32_t padding;
  uint64_t unused;
};

}  // namespace

API int cublasLtCreate(void** handle) {
  *handle = handle;
  return 0;
}

API size_t cublasLtGetVersion() {
  const char* set = std::getenv("VCC_FAKE_LT_VERSION");
  return set == nullptr ? 130100 : std::strtoul(set, nullptr, 10);
}

API int cublasLtMatmulDescCreate(void** made, int, int) {
  *made = new int;
  return 0;
}

API int cublasLtMatmulDescSetAttribute(void*, int, const void*, size_t) { return 0; }

API int cublasLtMatrixLayoutCreate(void** made, int, uint64_t rows, uint64_t columns, int64_t) {
  *made = new Layout{rows, columns};
  return 0;
}

API int cublasLtMatmulPreferenceCreate(void** made) {
  *made = new int;
  return 0;
}

API int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }

API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int,
                                       Heuristic* best, int* found) {
  *best = {};
  best->workspace = mode("split") ? 4096 : 0;
  *found = mode("none") ? 0 : 1;
  return mode("none") ? 15 : 0;
}

API int cublasLtMatmul(void*, void*, const void*, const void* w, void*, const void* a,
                       void* a_layout, const void*, const void* c, void*, void* d, void*,
                       const void*, void* workspace, size_t, CUstream stream) {
  const auto rows = static_cast<uint32_t>(static_cast<Layout*>(a_layout)->columns);
  auto* partly = static_cast<Partly*>(std::malloc(sizeof(Partly)));
  partly->rows = rows;
  uint64_t hidden = last_parameter(d);
  void* parameters[] = {&a, &w, &c, &d, &workspace, partly, &hidden};
  int code = launch("lt_main", stream, parameters, rows);
  if (mode("split")) {
    void* reducing[] = {&workspace, &d};
    code |= launch("lt_reduce", stream, reducing, rows);
  }
  if (mode("host")) {
    code |= of_driver<CUresult (*)(CUstream, CUhostFn, void*)>("cuLaunchHostFunc")(stream, nothing,
                                                                                   nullptr);
  }
  if (mode("wrong") && !capturing(stream)) std::memset(d, 0x11, 2);
  std::free(partly);
  return code;
}
