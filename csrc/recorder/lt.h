// cuBLASLt by dlopen: recording the nodes of a matrix product without launching it, and running one
// directly as the reference of what was recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "recorder/calls.h"

namespace vcc::recorder {

// d[m, n] = a[m, k] @ w[n, k]^T (+ c[m, n]); all dense and row-major, one dtype, fp32 sums. A
// scaled one has fp8 values in a and w, `out` in d, and for c a row [n] that every row of d gets.
// Scales of blocks of a are fp32 [ceil(k / 128), m], those of w [ceil(n / 128), ceil(k / 128)].
struct Product {
  uint32_t m, n, k;
  uint32_t dtype;  // codes of the node table: 1 float32, 2 float16, 3 bfloat16, 4 float8_e4m3fn
  uint32_t has_c;
  uint32_t out;     // dtype of a scaled one's c and d
  uint32_t scales;  // table::Scales
  uint32_t small;   // 1: with the workspace that torch has, not all that Hopper is advised

  bool operator==(const Product&) const = default;
};

struct Operands {
  uint64_t a, w, c, d, workspace, a_scale, w_scale;  // by the index of an OPERAND region
};

struct LtCalls;

class Lt {
 public:
  explicit Lt(const std::vector<std::string>& candidates);
  ~Lt();

  uint64_t version() const { return version_; }
  const std::string& path() const { return path_; }

  // Bytes of workspace that the algorithm chosen for a product uses.
  uint64_t workspace_bytes(const Product& product);

  // Enqueue on the stream; the workspace has the bytes that `workspace_bytes` says.
  void enqueue(const Product& product, const Operands& operands);

  // The nodes of a product, as JSON of describe_graph; nothing is launched and no address is read.
  // `turn` picks the stack and what dead stack and heap memory hold, so that bytes nobody wrote
  // differ between recordings of different turns (stacks.h).
  std::string record(const Product& product, const Operands& operands, uint32_t turn);

 private:
  struct Plan;
  Plan& plan(const Product& product);
  void describe_scaled(const Plan& made);
  void point(const Plan& made, const Operands& operands);
  CUgraph capture(const Product& product, const Operands& operands);

  std::string path_;
  uint64_t version_ = 0;
  void* handle_ = nullptr;
  void* preferences_[2] = {};  // by Product::small
  std::unique_ptr<LtCalls> calls_;
  std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace vcc::recorder
