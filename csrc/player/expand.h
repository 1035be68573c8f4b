// From a table and the sizes of a step to its launches: expressions evaluated, pointers relocated,
// matrix products resolved. Reads only, so several threads may expand at once.
#pragma once

#include <cstdint>
#include <vector>

#include "player/fill.h"
#include "player/gemms.h"
#include "player/launch.h"

namespace vcc {

// Where a region lies on the device.
struct Place {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// What a segment's launches depend on beside the number of tokens.
struct Dependence {
  bool seqs = false;     // on B
  bool when = false;     // on whether the step is uniform
  bool adapted = false;  // on whether a row has an adapter
};

class Expander {
 public:
  // `shapes` by kernel of the table, `places` by region (and behind them the workspace of the
  // GEMM store, where the table has no scratch); `blocks` is K. All outlive this object.
  Expander(const Table& table, const std::vector<Shape>& shapes, const std::vector<Place>& places,
           const Gemms& gemms, int64_t blocks);

  // Throws Error(kUsage) for sizes outside the declared ranges (which are named), kGraph for a
  // product that nobody computes and for what leaves its region or the launch limits.
  Expansion expand(const Step& step) const;

  // Values of the symbols, and of all expressions, for a step.
  std::vector<int64_t> sizes(const Step& step) const;
  std::vector<int64_t> values(const Step& step) const;
  // What the values of all expressions never exceed (K as given): those at the largest sizes, but
  // for remainders.
  const std::vector<int64_t>& largest() const { return largest_; }

  // By segment of the table.
  const std::vector<Dependence>& dependences() const { return dependences_; }

 private:
  struct Source;  // a table whose nodes are emitted: the step's own, or an entry of the store
  struct Operands;

  void find_dependences();
  void emit(const Source& source, const table::Node& node, uint32_t blame, Expansion& out) const;
  void emit_gemm(const Source& source, const table::Node& node, uint32_t blame,
                 Expansion& out) const;
  void emit_stored(const StoredGemm& stored, const Operands& operands, uint32_t blame,
                   Expansion& out) const;
  void emit_variant(const Source& source, const table::Gemm& gemm, int64_t rows,
                    const table::Variant& variant, const Operands& operands, uint32_t blame,
                    Expansion& out) const;
  void emit_scaled(const Source& source, const table::Gemm& gemm, int64_t rows,
                   const table::Variant& variant, const Operands& operands, uint32_t blame,
                   Expansion& out) const;
  Operands operands_of(const Source& source, const table::Node& node) const;
  void spread(const Source& source, const table::Gemm& gemm, int64_t rows, const GemmChoice& choice,
              Operands& operands, uint32_t blame, Expansion& out) const;
  void follow(uint32_t launches, Expansion& out) const;
  void connect(const std::vector<Run>& homes, Expansion& out) const;
  Place scratch() const;

  const Table& table_;
  const table::Records& records_;
  const std::vector<Shape>& shapes_;
  const std::vector<Place>& places_;
  const Gemms& gemms_;
  int64_t blocks_;
  std::vector<int64_t> largest_;
  std::vector<Dependence> dependences_;
};

}  // namespace vcc
