// What the torch side calls: one table of kernels per instruction set, plain data as arguments.
#pragma once

#include <stdint.h>

namespace vcc {

// Index into the pairs below: element type of the tensors.
enum Dtype : int { kFloat32 = 0, kBFloat16 = 1, kDtypes = 2 };

// y = x * rsqrt(mean(x^2) + eps) * (offset + weight) by row; with a residual, x + residual is
// rounded into `sum` first and normalised from there. Strides are in elements.
struct NormArgs {
  const void* x;
  const void* residual;  // null: no addition
  const void* weight;
  void* y;
  void* sum;
  int64_t dim, x_stride, residual_stride;
  float eps, offset;
};

// Index into the gated kernels: gelu by the error function, and by tanh.
enum Activation : int { kSilu = 0, kGelu = 1, kGeluTanh = 2, kActivations = 3 };

// y[d] = act(x[d]) * x[dim + d] by row.
struct GatedArgs {
  const void* x;
  void* y;
  int64_t dim, x_stride;
};

// q = x / scale as float8_e4m3fn by row, clamped to the largest finite value; NaN stays NaN.
// Without a given scale each block of a row gets its own, max(max |x|, least) / 448, into `scales`.
struct QuantArgs {
  const void* x;
  uint8_t* q;
  const float* scale;  // null: one for each block
  float* scales;
  int64_t dim, block, x_stride;
  float least;
};

// Rotate the first 2 * half values of each head; x and y are rows of `heads` heads.
struct RotaryArgs {
  const void* x;
  void* y;
  const float* cos;
  const float* sin;
  int64_t heads, head_dim, half, x_stride, cos_stride, sin_stride;
};

// Keys are taken in blocks that start at multiples of kKeyBlock, whatever the tile: a row's result
// depends neither on its neighbours nor on the number of threads.
constexpr int kKeyBlock = 64;
// Query rows x group up to which keys are read in place; above, they are packed once per tile.
constexpr int kDirectRows = 16;
// Rows x group of a packed tile.
constexpr int kPackedRows = 96;
// Keys of one work item when a sequence with few rows is split.
constexpr int kSplitKeys = 512;

struct AttentionArgs {
  const void* q;
  const void* k;  // first key block of the cache; v likewise
  const void* v;
  void* out;
  const int32_t* block_table;
  int64_t q_stride, out_stride, table_stride;
  int64_t block_stride, slot_stride, head_stride;  // of the cache, in elements
  int64_t block_size, head_dim, group;
  int64_t window;  // 0: none
  float scale, cap;
  float v_scale;  // of the cache's values; that of its keys is in `scale`
};

// What the cache holds: elements of the queries' type, or float8_e4m3fn.
enum CacheKind : int { kOwnType = 0, kFp8Cache = 1, kCacheKinds = 2 };

// Query rows [row, row + rows) of sequence `index`; the first sits at position `position`.
struct AttentionTile {
  int64_t index, row, rows, position;
  int64_t chunks;   // work items over the keys
  int64_t partial;  // offset of its partial results in floats
};

// Softmax of each row [experts] of logits, and of it the top_k largest, into dense rows.
struct RouterArgs {
  const void* logits;
  float* weights;
  int32_t* ids;
  int64_t stride, experts, top_k;
  bool renormalise;
};

// out[t] = sum over the pairs of t of weight * down(silu(gate(x[t])) * up(x[t])). A pair is a row
// and one of its experts; pairs lie in order of expert.
struct ExpertsArgs {
  const void* x;
  const void* gate_up;   // [experts][2 * width][hidden]
  const void* down;      // [experts][hidden][width]
  void* inner;           // [pairs][width]: silu(gate) * up
  void* out;             // [tokens][hidden]
  const int32_t* token;  // row of each pair
  const float* weight;   // of each pair
  const int64_t* first;  // first pair of each expert, then the number of pairs
  int64_t tokens, hidden, width, experts, x_stride;
};

// Columns [column, column + columns) of inner for pairs [begin, end) of one expert; or those
// columns of out for all pairs.
struct ExpertTile {
  int64_t expert, begin, end, column, columns;
};

// Rows that a product of an expert takes at a time, at most.
constexpr int kMostDotRows = 6;

struct ExpertKernels {
  // scratch: 2 * kMostDotRows * columns floats.
  void (*up)(const ExpertsArgs&, const ExpertTile&, float* scratch);
  // scratch: (tokens + kMostDotRows) * columns floats.
  void (*down)(const ExpertsArgs&, const ExpertTile&, float* scratch);
};

// low = x times the first matrix of the row's adapter [width][depth]; or out = x + low times the
// second one, of whose rows each reads `depth` values of low.
struct LoraArgs {
  const void* x;
  const void* matrix;  // [slots][width][depth]
  float* low;
  void* out;  // dense rows
  int64_t x_stride, low_stride, width, depth;
};

// Columns [column, column + columns) of rows [row, row + rows), which have one adapter; `part` of
// low is read. A product takes at most four rows at a time.
struct LoraTile {
  int64_t slot, row, rows, column, columns, part;
};

// out = (x times the rows of weight) * scale + bias, of fp8 weights and rows that are fp32 already.
struct ScaledArgs {
  const float* x;         // [tokens][depth]
  const uint8_t* weight;  // [width][depth], float8_e4m3fn
  const float* scale;     // of each row of weight; null: of blocks
  const float* blocks;    // [ceil(width / kScaleBlock)][ceil(depth / kScaleBlock)]
  const void* bias;       // null: none
  void* out;              // [tokens][width]
  int64_t tokens, width, depth;
};

// Rows of fp8 in fp32, each or each block of each times its scale.
struct UnscaleArgs {
  const uint8_t* x;
  const float* scales;
  float* y;
  int64_t dim, x_stride;
  int64_t block;         // values that share a scale
  int64_t scale_stride;  // scales from one row to the next; 0: all rows have the same
};

// Rows and columns of weights, and values of a row, that share a scale of a block.
constexpr int kScaleBlock = 128;
// Rows up to which weights are read in place; above, they are packed once for all rows.
constexpr int kFewRows = 8;
// Columns of a packed panel, and values of the summed dimension that it holds at a time.
constexpr int kPanelColumns = 64, kPanelDepth = 256;

struct Kernels {
  void (*norm[kDtypes])(const NormArgs&, int64_t begin, int64_t end);
  void (*gated[kActivations][kDtypes])(const GatedArgs&, int64_t begin, int64_t end);
  void (*quantise[kDtypes])(const QuantArgs&, int64_t begin, int64_t end);
  void (*rotary[kDtypes])(const RotaryArgs&, int64_t begin, int64_t end);
  // Floats of scratch (64-byte aligned) that attend needs, and of one chunk's partial result.
  int64_t (*attention_scratch)(const AttentionArgs&, int64_t rows);
  int64_t (*attention_partial)(const AttentionArgs&, int64_t rows);
  // Attention of one tile for one key head over one chunk; into `out`, or `partials` when split.
  void (*attend[kCacheKinds][kDtypes])(const AttentionArgs&, const AttentionTile&, int64_t kv_head,
                                       int64_t chunk, float* scratch, float* partials);
  // Join the chunks of a split tile.
  void (*merge[kDtypes])(const AttentionArgs&, const AttentionTile&, int64_t kv_head,
                         float* partials);
  // scratch: a float for each expert.
  void (*route[kDtypes])(const RouterArgs&, int64_t begin, int64_t end, float* scratch);
  ExpertKernels experts[kDtypes];
  void (*unscale)(const UnscaleArgs&, int64_t begin, int64_t end);
  // Columns [column, column + columns) of out; scratch: scaled_scratch floats.
  int64_t (*scaled_scratch)(const ScaledArgs&, int64_t columns);
  void (*scaled[kDtypes])(const ScaledArgs&, int64_t column, int64_t columns, float* scratch);
  // y = silu(x[i]) * x[width + i], rounded.
  void (*gate_row[kDtypes])(const float* x, void* y, int64_t width);
  void (*add_row)(float* sum, const float* x, float factor, int64_t count);
  void (*round_row[kDtypes])(const float* x, void* y, int64_t width);
  void (*lora_shrink[kDtypes])(const LoraArgs&, const LoraTile&);
  void (*lora_expand[kDtypes])(const LoraArgs&, const LoraTile&);
};

// The table for this CPU: chosen once, by vcc::cpu_level().
const Kernels& kernels();
// Those for gated experts, which know one more extension of the CPU.
const ExpertKernels& expert_kernels(Dtype dtype);

}  // namespace vcc
