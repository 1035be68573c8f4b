#include "recorder/lt.h"

#include <malloc.h>

#include <exception>
#include <iterator>

#include "abi/error.h"
#include "recorder/graph.h"
#include "recorder/library.h"
#include "recorder/lt_words.h"
#include "recorder/stacks.h"
#include "table/format.h"

namespace vcc::recorder {

namespace {

// cublasLt.h, cublas_api.h and library_types.h, as of CUDA 12 and 13.
struct Algorithm {
  uint64_t data[8];
};

struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

constexpr int kCompute32F = 68;
constexpr int kReal32F = 0;
constexpr int kTransposeA = 3;               // CUBLASLT_MATMUL_DESC_TRANSA
constexpr int kEpilogue = 7;                 // CUBLASLT_MATMUL_DESC_EPILOGUE
constexpr int kBiasPointer = 8;              // CUBLASLT_MATMUL_DESC_BIAS_POINTER
constexpr int kWScalePointer = 17;           // CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: w is its A
constexpr int kAScalePointer = 18;           // CUBLASLT_MATMUL_DESC_B_SCALE_POINTER
constexpr int kFastAccumulation = 25;        // CUBLASLT_MATMUL_DESC_FAST_ACCUM
constexpr int kBiasType = 26;                // CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE
constexpr int kScaleModes[] = {31, 32};      // CUBLASLT_MATMUL_DESC_{A,B}_SCALE_MODE
constexpr uint32_t kAddBias = 4;             // CUBLASLT_EPILOGUE_BIAS
constexpr uint64_t kSomewhere = 1 << 20;     // an address for the choice, which reads none
constexpr int kMaxWorkspace = 1;             // CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr int kAlignments[] = {5, 6, 7, 8};  // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{A,B,C,D}_BYTES
constexpr uint32_t kAlignment = table::kStoredAlignment;  // what players promise of operands
// What NVIDIA advises for Hopper, and torch's own. Which algorithm is chosen depends on it, and the
// one of less memory is the faster one of some products.
constexpr uint64_t kWorkspaceLimits[] = {32u << 20, 1u << 20};

}  // namespace

struct LtCalls {
  int (*create)(void**);
  int (*describe)(void**, int, int);
  int (*set)(void*, int, const void*, size_t);
  int (*layout)(void**, int, uint64_t, uint64_t, int64_t);
  int (*prefer)(void**);
  int (*set_preference)(void*, int, const void*, size_t);
  int (*choose)(void*, void*, void*, void*, void*, void*, void*, int, Heuristic*, int*);
  int (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*,
                const void*, void*, void*, void*, const Algorithm*, void*, size_t, CUstream);
  size_t (*version)();
};

struct Lt::Plan {
  Product product;
  void* description = nullptr;
  void *w = nullptr, *a = nullptr, *d = nullptr;
  Heuristic best = {};
};

namespace {

void expect(int code, const char* call) {
  if (code == 0) return;
  throw Error(Code::kDevice, std::string(call) + " failed",
              "cuBLASLt answered " + status_name(code));
}

// A call about a product: what fails leaves the others as they are.
void expect_for(int code, const char* call, const Product& product) {
  if (code == 0) return;
  throw Error(Code::kGraph, "cuBLASLt has no product " + shape_of(product),
              std::string(call) + " answered " + status_name(code));
}

}  // namespace

Lt::Lt(const std::vector<std::string>& candidates) : calls_(new LtCalls) {
  const Library library(candidates, "cuBLASLt",
                        "install nvidia-cublas or the CUDA toolkit; matrix products run by the "
                        "Triton kernels of the artifact without it");
  path_ = library.path();
#define VCC_LT(field, name) calls_->field = library.function<decltype(calls_->field)>(name)
  VCC_LT(create, "cublasLtCreate");
  VCC_LT(describe, "cublasLtMatmulDescCreate");
  VCC_LT(set, "cublasLtMatmulDescSetAttribute");
  VCC_LT(layout, "cublasLtMatrixLayoutCreate");
  VCC_LT(prefer, "cublasLtMatmulPreferenceCreate");
  VCC_LT(set_preference, "cublasLtMatmulPreferenceSetAttribute");
  VCC_LT(choose, "cublasLtMatmulAlgoGetHeuristic");
  VCC_LT(matmul, "cublasLtMatmul");
  VCC_LT(version, "cublasLtGetVersion");
#undef VCC_LT
  version_ = calls_->version();
  expect(calls_->create(&handle_), "cublasLtCreate");
  for (size_t small = 0; small < std::size(kWorkspaceLimits); ++small) {
    void*& made = preferences_[small];
    expect(calls_->prefer(&made), "cublasLtMatmulPreferenceCreate");
    expect(calls_->set_preference(made, kMaxWorkspace, &kWorkspaceLimits[small], 8),
           "cublasLtMatmulPreferenceSetAttribute");
    for (const int which : kAlignments) {
      expect(calls_->set_preference(made, which, &kAlignment, 4),
             "cublasLtMatmulPreferenceSetAttribute");
    }
  }
}

Lt::~Lt() = default;  // its objects live as long as the process: the library has no unload either

Lt::Plan& Lt::plan(const Product& product) {
  for (const auto& made : plans_) {
    if (made->product == product) return *made;
  }
  // Column-major D^T[n, m] = W[k, n]^T A[k, m], which is D = A W^T in row-major order.
  auto made = std::make_unique<Plan>();
  made->product = product;
  const bool scaled = product.scales != 0;
  const int dtype = cuda_dtype(product.dtype),
            out = cuda_dtype(scaled ? product.out : product.dtype);
  const uint64_t m = product.m, n = product.n, k = product.k;
  constexpr int kTransposed = 1;
  expect(calls_->describe(&made->description, kCompute32F, kReal32F), "cublasLtMatmulDescCreate");
  expect(calls_->set(made->description, kTransposeA, &kTransposed, 4),
         "cublasLtMatmulDescSetAttribute");
  expect(calls_->layout(&made->w, dtype, k, n, static_cast<int64_t>(k)),
         "cublasLtMatrixLayoutCreate");
  expect(calls_->layout(&made->a, dtype, k, m, static_cast<int64_t>(k)),
         "cublasLtMatrixLayoutCreate");
  expect(calls_->layout(&made->d, out, n, m, static_cast<int64_t>(n)),
         "cublasLtMatrixLayoutCreate");
  if (scaled) describe_scaled(*made);
  int found = 0;
  const int code = calls_->choose(handle_, made->description, made->w, made->a, made->d, made->d,
                                  preferences_[product.small != 0], 1, &made->best, &found);
  if (code != 0 || found == 0) {
    throw Error(Code::kGraph, "cuBLASLt has no algorithm for " + shape_of(product),
                "it answered " + (code == 0 ? "that it found none" : status_name(code)));
  }
  plans_.push_back(std::move(made));
  return *plans_.back();
}

// Sums in full: with CUBLASLT_MATMUL_DESC_FAST_ACCUM they would stay in the tensor cores over all
// of k, with fewer bits than decision 0020 allows; torch._scaled_mm leaves it off by default too.
void Lt::describe_scaled(const Plan& made) {
  const Product& product = made.product;
  const Form& form = form_of(product);
  if (form.lacking != nullptr) {
    throw Error(Code::kGraph, "cuBLASLt has no product " + shape_of(product), form.lacking);
  }
  if (product.dtype != 4) {
    throw Error(Code::kUsage, "a product with scales is one of float8_e4m3fn",
                "dtype code " + std::to_string(product.dtype));
  }
  const int8_t fast = 0;
  expect_for(calls_->set(made.description, kFastAccumulation, &fast, 1), "FAST_ACCUM", product);
  const int32_t codes[] = {form.w, form.a};  // w is its A
  for (int side = 0; side < 2; ++side) {
    // Libraries before 12.8 know one number only, and not this attribute.
    if (codes[side] == 0) continue;
    expect_for(calls_->set(made.description, kScaleModes[side], &codes[side], 4), form.mode,
               product);
  }
  if (product.has_c != 0) {
    const int32_t type = cuda_dtype(product.out);
    expect_for(calls_->set(made.description, kEpilogue, &kAddBias, 4), "EPILOGUE_BIAS", product);
    expect_for(calls_->set(made.description, kBiasType, &type, 4), "BIAS_DATA_TYPE", product);
  }
  point(made, {0, 0, kSomewhere, 0, 0, kSomewhere, kSomewhere});
}

// Pointers that are attributes of the description and not arguments of a call.
void Lt::point(const Plan& made, const Operands& operands) {
  const auto set = [&](int attribute, uint64_t address, const char* name) {
    expect_for(calls_->set(made.description, attribute, &address, 8), name, made.product);
  };
  set(kAScalePointer, operands.a_scale, "B_SCALE_POINTER");
  set(kWScalePointer, operands.w_scale, "A_SCALE_POINTER");
  if (made.product.has_c != 0) set(kBiasPointer, operands.c, "BIAS_POINTER");
}

uint64_t Lt::workspace_bytes(const Product& product) { return plan(product).best.workspace; }

void Lt::enqueue(const Product& product, const Operands& operands) {
  const Plan& chosen = plan(product);
  const bool scaled = product.scales != 0, sums = product.has_c != 0 && !scaled;
  if (scaled) point(chosen, operands);
  const float alpha = 1.0f, beta = sums ? 1.0f : 0.0f;
  const uint64_t c = sums ? operands.c : operands.d;
  const auto pointer = [](uint64_t address) { return reinterpret_cast<void*>(address); };
  expect_for(calls_->matmul(handle_, chosen.description, &alpha, pointer(operands.w), chosen.w,
                            pointer(operands.a), chosen.a, &beta, pointer(c), chosen.d,
                            pointer(operands.d), chosen.d, &chosen.best.algorithm,
                            pointer(operands.workspace), chosen.best.workspace, stream()),
             "cublasLtMatmul", product);
}

CUgraph Lt::capture(const Product& product, const Operands& operands) {
  CUgraph graph = nullptr;
  VCC_CU(cuStreamBeginCapture(stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
  std::exception_ptr failed;
  try {
    enqueue(product, operands);
  } catch (...) {
    failed = std::current_exception();
  }
  const CUresult code = driver().cuStreamEndCapture(stream(), &graph);
  if (failed != nullptr) std::rethrow_exception(failed);
  if (code != CUDA_SUCCESS) fail_call(code, "cuStreamEndCapture", __FILE__, __LINE__);
  return graph;
}

std::string Lt::record(const Product& product, const Operands& operands, uint32_t turn) {
  plan(product);  // not part of what is recorded
  stream();
  CUgraph graph = nullptr;
  mallopt(M_PERTURB, pattern_of(turn));  // a new thread has no blocks that skip this
  try {
    on_stack_of(turn, [&] { graph = capture(product, operands); });
  } catch (...) {
    mallopt(M_PERTURB, 0);
    throw;
  }
  mallopt(M_PERTURB, 0);
  std::string text;
  try {
    text = describe_graph(graph);
  } catch (...) {
    driver().cuGraphDestroy(graph);
    throw;
  }
  VCC_CU(cuGraphDestroy(graph));
  return text;
}

}  // namespace vcc::recorder
