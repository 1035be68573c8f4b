// A double of cuBLASLt over the double of libcuda: a product is a launch of `lt_main`, of a cubin
// that VCC_FAKE_LT_CUBIN names. VCC_FAKE_LT says what a product does besides:
//   split   a second kernel, behind a programmatic edge, reads the workspace
//   hidden  a parameter holds an address shifted by four bits
//   stack   a parameter holds an address of the stack, heap one of the heap, unwritten nothing
//   host    a callback on the host
//   wrong   computed directly, the result is filled; the kernels of the double fill nothing
//   none    there is no algorithm
//   inexact a product of fp8 is one too large, here and in its kernels
//   large   it takes 2 MiB of workspace where it may, and is slow with it; hasty: fast with it
// A product of fp8 values is a launch of `lt_scaled`, which computes: scales are one number each,
// one a row each, or one for 128 values of a row of a and for 128 x 128 of w; n and k are multiples
// of 16, and of blocks m is one of 4. Rows of the weight's scales begin at multiples of four.
// A product whose operands are promised at less than 256 bytes takes a workspace more.
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
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
  int type;
  uint64_t rows, columns;
};

struct Description {
  uint64_t bias = 0, w_scale = 0, a_scale = 0;
  int32_t w_mode = 0, a_mode = 0, bias_type = -1;
  uint32_t epilogue = 1;
  int8_t fast = 0;
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of a, b, c and d, in bytes
};

constexpr int kFp8 = 28, kRows = 3, kVectors = 4, kBlocks = 5;
constexpr uint32_t kBlock = 128;

// What `lt_scaled` is given.
struct Scaled {
  uint64_t a, w, bias, d, a_scale, w_scale;
  uint32_t m, n, k, out, mode, adds;  // mode of w
};

uint32_t blocks(uint32_t size) { return (size + kBlock - 1) / kBlock; }

float of_fp8(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(8.0f + static_cast<float>(mantissa), exponent - 10);
  return bits & 0x80 ? -size : size;
}

float of_bf16(uint16_t bits) {
  const uint32_t word = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

uint16_t to_bf16(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  return static_cast<uint16_t>((word + 0x7FFF + (word >> 16 & 1)) >> 16);
}

template <class T>
T* at(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// The factor of value `i` of a row of a and of a row of w.
float factor(const Scaled& one, uint32_t row, uint32_t column, uint32_t i) {
  const float* a = at<float>(one.a_scale);
  const float* w = at<float>(one.w_scale);
  if (one.mode == kRows) return a[row] * w[column];
  if (one.mode != kBlocks) return a[0] * w[0];
  const uint32_t pitch = (blocks(one.k) + 3) / 4 * 4;
  return a[uint64_t{i / kBlock} * one.m + row] * w[uint64_t{column / kBlock} * pitch + i / kBlock];
}

void compute(const char* name, const void* parameters) {
  if (std::strcmp(name, "lt_scaled") != 0) return;
  Scaled one;
  std::memcpy(&one, parameters, sizeof one);
  for (uint32_t row = 0; row < one.m; ++row) {
    for (uint32_t column = 0; column < one.n; ++column) {
      float sum = mode("inexact") ? 1.0f : 0.0f;
      for (uint32_t i = 0; i < one.k; ++i) {
        sum += of_fp8(at<uint8_t>(one.a)[uint64_t{row} * one.k + i]) *
               of_fp8(at<uint8_t>(one.w)[uint64_t{column} * one.k + i]) *
               factor(one, row, column, i);
      }
      const uint64_t place = uint64_t{row} * one.n + column;
      if (one.out == 0) {
        at<float>(one.d)[place] = sum;
      } else {
        if (one.adds) sum += of_bf16(at<uint16_t>(one.bias)[column]);
        at<uint16_t>(one.d)[place] = to_bf16(sum);
      }
    }
  }
}

constexpr size_t kLarge = 2 << 20;

// With a workspace, or without one.
void linger(const char*, const void* parameters) {
  uint64_t workspace;
  std::memcpy(&workspace, static_cast<const char*>(parameters) + 32, sizeof workspace);
  if ((workspace != 0) == mode("large")) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

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
  *made = new Description;
  return 0;
}

API int cublasLtMatmulDescSetAttribute(void* description, int attribute, const void* value,
                                       size_t size) {
  auto& made = *static_cast<Description*>(description);
  const struct {
    int attribute;
    void* field;
    size_t size;
  } fields[] = {{7, &made.epilogue, 4}, {8, &made.bias, 8},   {17, &made.w_scale, 8},
                {18, &made.a_scale, 8}, {25, &made.fast, 1},  {26, &made.bias_type, 4},
                {31, &made.w_mode, 4},  {32, &made.a_mode, 4}};
  for (const auto& one : fields) {
    if (one.attribute != attribute) continue;
    if (one.size != size) return 7;
    std::memcpy(one.field, value, size);
    return 0;
  }
  return attribute == 3 ? 0 : 7;
}

API int cublasLtMatrixLayoutCreate(void** made, int type, uint64_t rows, uint64_t columns,
                                   int64_t) {
  *made = new Layout{type, rows, columns};
  return 0;
}

API int cublasLtMatmulPreferenceCreate(void** made) {
  *made = new Preference;
  return 0;
}

API int cublasLtMatmulPreferenceSetAttribute(void* preference, int which, const void* value,
                                             size_t size) {
  auto& made = *static_cast<Preference*>(preference);
  const bool workspace = which == 1;
  if (!workspace && (which < 5 || which > 8)) return 7;
  if (size != (workspace ? 8 : 4)) return 7;
  std::memcpy(workspace ? static_cast<void*>(&made.workspace) : &made.alignments[which - 5], value,
              size);
  return 0;
}

bool has_modes(const Description& asked, const Layout& rows) {
  if (asked.w_mode == kBlocks) return asked.a_mode == kVectors && rows.columns % 4 == 0;
  return asked.w_mode == asked.a_mode && (asked.w_mode == 0 || asked.w_mode == kRows);
}

API int cublasLtMatmulAlgoGetHeuristic(void*, void* description, void* w, void* a, void*, void* d,
                                       void* preference, int, Heuristic* best, int* found) {
  const auto& asked = *static_cast<Description*>(description);
  const auto& weight = *static_cast<Layout*>(w);
  if (weight.type == kFp8) {
    const bool odd = weight.rows % 16 != 0 || weight.columns % 16 != 0;
    const bool bias = asked.epilogue == 4 && asked.bias_type != static_cast<Layout*>(d)->type;
    *found = 0;
    const int type = static_cast<Layout*>(d)->type;
    if (type != 0 && type != 14) return 15;  // float32 and bfloat16
    if (!has_modes(asked, *static_cast<Layout*>(a))) return 15;
    if (odd || bias || asked.w_scale == 0 || asked.a_scale == 0) return 15;
  }
  *best = {};
  const auto& limits = *static_cast<Preference*>(preference);
  best->workspace = mode("split") ? 4096 : 0;
  if ((mode("large") || mode("hasty")) && limits.workspace >= kLarge) best->workspace = kLarge;
  for (const uint32_t alignment : limits.alignments) {
    if (alignment < 256) best->workspace = 512;
  }
  *found = mode("none") ? 0 : 1;
  return mode("none") ? 15 : 0;
}

int multiply_scaled(const Description& asked, const Layout& weight, const Layout& rows,
                    const Layout& result, const void* w, const void* a, void* d, CUstream stream) {
  using Hook = void (*)(void (*)(const char*, const void*));
  of_driver<Hook>("fake_on_launch")(&compute);
  Scaled one = {reinterpret_cast<uint64_t>(a),
                reinterpret_cast<uint64_t>(w),
                asked.bias,
                reinterpret_cast<uint64_t>(d),
                asked.a_scale,
                asked.w_scale};
  one.m = static_cast<uint32_t>(rows.columns);
  one.n = static_cast<uint32_t>(weight.columns);
  one.k = static_cast<uint32_t>(weight.rows);
  one.out = static_cast<uint32_t>(result.type);
  one.mode = static_cast<uint32_t>(asked.w_mode);
  one.adds = asked.epilogue == 4;
  if (asked.fast != 0) return 15;  // what is asked for here is the other one
  void* parameters[] = {&one.a, &one.w, &one.bias, &one.d, &one.a_scale, &one.w_scale, &one.m};
  const int code = launch("lt_scaled", stream, parameters, one.m);
  if (mode("wrong") && !capturing(stream)) std::memset(d, 0x11, 2);
  return code;
}

API int cublasLtMatmul(void*, void* description, const void*, const void* w, void* w_layout,
                       const void* a, void* a_layout, const void*, const void* c, void*, void* d,
                       void* d_layout, const void*, void* workspace, size_t, CUstream stream) {
  if (static_cast<Layout*>(w_layout)->type == kFp8) {
    return multiply_scaled(*static_cast<Description*>(description), *static_cast<Layout*>(w_layout),
                           *static_cast<Layout*>(a_layout), *static_cast<Layout*>(d_layout), w, a,
                           d, stream);
  }
  const auto rows = static_cast<uint32_t>(static_cast<Layout*>(a_layout)->columns);
  if (mode("large") || mode("hasty")) {
    using Hook = void (*)(void (*)(const char*, const void*));
    of_driver<Hook>("fake_on_launch")(&linger);
  }
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
