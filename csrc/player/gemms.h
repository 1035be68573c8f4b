// Who computes a matrix product: nodes of the GEMM store, a Triton kernel of the table, or nobody.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "player/fill.h"
#include "player/launch.h"
#include "player/modules.h"

namespace vcc {

// A product d[m,n] = a[m,k] @ w[n,k]^T (+ c) apart from its rows; `flags` bit 0: with c. `out` and
// `scales` are of scaled products, as in a table.
struct GemmShape {
  uint32_t n, k;
  uint8_t dtype, flags, out;
  table::Scales scales;

  auto operator<=>(const GemmShape&) const = default;
};

GemmShape shape_of(const table::Gemm& gemm);

enum class GemmRoute : uint8_t { kNone = 0, kStored = 1, kVariant = 2 };

// One entry of the store: one to three nodes over operands a, w, c, d, scales and a workspace.
struct StoredGemm {
  Table table;
  std::vector<Shape> shapes;    // by kernel of its table
  std::vector<int64_t> values;  // of its expressions
  uint64_t workspace = 0;       // bytes
};

// What the store has for a product of exactly `rows` rows, and the measured choice where there is
// one (kNone: there is none). The entry itself may come later.
struct GemmOffer {
  GemmShape shape;
  int64_t rows = 0;
  GemmRoute route = GemmRoute::kNone;
  uint64_t workspace = 0;  // bytes, at most; of the nodes alone
};

struct GemmChoice {
  GemmRoute route = GemmRoute::kNone;
  int64_t rows = 0;                    // that the nodes compute: of the entry, or as asked for
  const StoredGemm* stored = nullptr;  // kStored; null as long as the entry has not come
  uint32_t variant = 0;                // kVariant: index in the step's table
};

// Choices depend on what was offered, not on what has come: whoever needs an entry waits for it. So
// a number of rows is computed one way, whenever it is asked for.
//
// Any thread may call any function. An entry that has come stays.
class Gemms {
 public:
  explicit Gemms(const table::Records& table);

  // Entries that will come; `finish` ends the waiting for them. Returns for each whether some
  // number of rows may take it: not where the measured choice is a variant.
  std::vector<bool> offer(std::span<const GemmOffer> offers);

  // The entry of an offer has come; a second one for the same is dropped.
  void add(uint32_t offer, std::shared_ptr<StoredGemm> stored);

  // The entry of an offer will not come: as if it had never been offered.
  void withdraw(uint32_t offer);

  // No entry comes any more. Offers without one are as if they had never been, except where a
  // variant computes them.
  void finish();

  GemmOffer offered(uint32_t offer) const;

  // For `rows` rows where the buffers hold `most`: the entry of the smallest sufficient number of
  // rows, else the first variant that fits. Does not wait.
  GemmChoice choose(const table::Gemm& gemm, int64_t rows, int64_t most) const;

  // As `choose`, with the entry: waits for it. Throws Error(kGraph) that names the product when
  // there is no choice.
  GemmChoice must_choose(const table::Gemm& gemm, int64_t rows, int64_t most) const;

  // The offer that `choose` takes, or kNoOffer.
  static constexpr uint32_t kNoOffer = ~uint32_t{0};
  uint32_t offer_of(const table::Gemm& gemm, const GemmChoice& choice) const;

  // Largest workspace of all offers, in bytes.
  uint64_t workspace() const;

 private:
  struct Bucket {
    uint32_t offer;
    GemmRoute route;
    std::shared_ptr<StoredGemm> stored;  // null until it has come
  };

  // Whether stored nodes can compute products of a shape: they ask for aligned operands, and where
  // scales are of blocks for a kernel that spreads them.
  bool storable(const GemmShape& shape) const;
  GemmChoice choose_locked(const table::Gemm& gemm, int64_t rows, int64_t most) const;
  Bucket* bucket_of(uint32_t offer);

  const table::Records& table_;
  const std::map<GemmShape, uint64_t> alignments_;
  mutable std::mutex lock_;
  mutable std::condition_variable changed_;
  std::vector<GemmOffer> offers_;
  std::map<GemmShape, std::map<int64_t, Bucket>> buckets_;
  bool finished_ = false;
  uint64_t workspace_ = 0;
};

// Scales of blocks lie dense in a table: of a `across` times as many as there are rows, of w `down`
// rows of `across`. Entries read those of a as many rows apart as they have, and rows of those of w
// at multiples of kStoredScaleColumns. A kernel of the table spreads them where that is another
// place, into the bytes behind the workspace: first those of a, then those of w.
struct Spread {
  Spread(const GemmShape& shape, int64_t rows, uint64_t workspace);  // `rows` of the entry

  int64_t across, down, pitch;  // blocks of k and of n; columns of the weight's scales, spread
  bool of_w;                    // whether the weight's are to be spread
  uint64_t a_at, a_bytes, w_at, w_bytes;  // in scratch

  // Bytes of scratch that the entry needs in all.
  uint64_t scratch() const { return of_w ? w_at + w_bytes : a_at + a_bytes; }
};

// The kernel that does it; kNone where the table has none.
uint32_t spreading_kernel(const table::Records& table, const GemmShape& shape);

// Bytes of scratch that an entry needs in all.
uint64_t scratch_of(const GemmOffer& offer);

// Kernels of a table, loaded and checked.
std::vector<Shape> shapes_of(const table::Records& table, Modules& modules);

// A SHA-256 of a table.
std::string hex_of(const uint8_t (&digest)[32]);

// How scales are called; empty without.
const char* scales_text(table::Scales scales);

std::string gemm_text(const table::Gemm& gemm, int64_t rows);

}  // namespace vcc
