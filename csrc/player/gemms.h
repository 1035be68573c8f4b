// Who computes a matrix product: nodes of the GEMM store, a Triton kernel of the table, or nobody.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "player/fill.h"
#include "player/launch.h"
#include "player/modules.h"

namespace vcc {

// A product d[m,n] = a[m,k] @ w[n,k]^T (+ c) apart from its rows; `flags` bit 0: with c.
struct GemmShape {
  uint32_t n, k;
  uint8_t dtype, flags;

  auto operator<=>(const GemmShape&) const = default;
};

enum class GemmRoute : uint8_t { kNone = 0, kStored = 1, kVariant = 2 };

// One entry of the store: one to three nodes over operands a, w, c, d and a workspace.
struct StoredGemm {
  Table table;
  std::vector<Shape> shapes;    // by kernel of its table
  std::vector<int64_t> values;  // of its expressions
  uint64_t workspace = 0;       // bytes
};

struct GemmChoice {
  GemmRoute route = GemmRoute::kNone;
  int64_t rows = 0;                    // that the nodes compute: of the entry, or as asked for
  const StoredGemm* stored = nullptr;  // kStored
  uint32_t variant = 0;                // kVariant: index in the step's table
};

class Gemms {
 public:
  explicit Gemms(const table::Records& table) : table_(table) {}

  // Take an entry of the store for exactly `rows` rows; a second one for the same replaces it.
  void add(GemmShape shape, int64_t rows, std::shared_ptr<StoredGemm> stored);

  // The measured choice for a product of `rows` rows (`vcc tune`).
  void prefer(GemmShape shape, int64_t rows, GemmRoute route);

  // For `rows` rows where the buffers hold `most`: the entry of the smallest sufficient number of
  // rows, else the first variant that fits.
  GemmChoice choose(const table::Gemm& gemm, int64_t rows, int64_t most) const;

  // As `choose`. Throws Error(kGraph) that names the product when there is no choice.
  GemmChoice must_choose(const table::Gemm& gemm, int64_t rows, int64_t most) const;

  // Largest workspace of all entries, in bytes.
  uint64_t workspace() const { return workspace_; }

 private:
  const table::Records& table_;
  std::map<GemmShape, std::map<int64_t, std::shared_ptr<StoredGemm>>> stored_;
  std::map<std::pair<GemmShape, int64_t>, GemmRoute> preferred_;
  uint64_t workspace_ = 0;
};

// Kernels of a table, loaded and checked.
std::vector<Shape> shapes_of(const table::Records& table, Modules& modules);

std::string gemm_text(const table::Gemm& gemm, int64_t rows);

}  // namespace vcc
