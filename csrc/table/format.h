// The node table's binary form, version 2: records as they lie in the file, little endian.
//
//   file    = header entry*16 section*16
//   section = record*count            starts at a multiple of 8, zeros between sections
//
// docs/format.md says what every field means; engine/graphs/table/layout.py is the same in Python.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace vcc::table {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[] = "vcctable";
constexpr uint32_t kVersion = 2;
constexpr uint32_t kNone = 0xFFFFFFFF;  // "no record"
constexpr uint64_t kAlignment = 8;

enum class SectionKind : uint32_t {
  kStrings,
  kSymbols,
  kExprs,
  kRegions,
  kLists,
  kTensors,
  kCubins,
  kKernels,
  kAttributes,
  kNodes,
  kParams,
  kGemms,
  kVariants,
  kSegments,
  kEdges,
  kBytes,
};
constexpr uint32_t kSections = 16;

enum class Op : uint8_t { kConst, kSymbol, kAdd, kMul, kFloorDiv, kMod, kMin, kMax, kCeilDiv };
enum class RegionKind : uint32_t {
  kWeights,
  kKvCache,
  kIo,
  kWorkspace,
  kScratch,
  kPeer,
  kOperand,
};
enum class Role : uint8_t { kInput, kOutput, kWeight, kConstant, kCache, kState };
enum class NodeKind : uint8_t { kKernel, kGemm, kMemset, kMemcpy, kEmpty };
enum class When : uint8_t { kAlways, kUniform, kMixed, kAdapted };
enum class ParamKind : uint8_t { kPointer, kI32, kI64, kNull, kBytes, kF32, kF64 };
enum class SegmentKind : uint8_t { kPiece, kOp, kAdvance, kSample };
// What a scaled product multiplies its operands with: nothing; one number each; one number a row
// each; one a block of 128 of a and one a block of 128 x 128 of w; one number for a, one a row of
// w.
enum class Scales : uint8_t { kNone, kTensor, kRows, kBlocks, kMixed };

constexpr uint8_t kRead = 1, kWrite = 2;  // bits of Param::access
constexpr uint8_t kAddsC = 1;             // flag of gemms and variants
constexpr uint32_t kNonPortable = 1;      // flag of kernels

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t flags;
  uint64_t size;
  uint32_t sections;
  uint32_t zero32;
  uint64_t zero64;
};

struct Entry {
  SectionKind kind;
  uint32_t record_size;
  uint64_t offset;
  uint64_t count;
};

// A text in the strings section.
struct StrRef {
  uint32_t offset;
  uint32_t length;
};

struct Symbol {
  StrRef name;
  int64_t low;
  int64_t high;
};

struct Expr {
  Op op;
  uint8_t zero[3];
  uint32_t a;
  int64_t b;
};

struct Region {
  RegionKind kind;
  uint32_t index;
  uint32_t size;  // expression
  uint32_t alignment;
};

struct Tensor {
  StrRef name;
  StrRef target;
  Role role;
  uint8_t dtype;
  uint16_t zero;
  uint32_t region;
  uint32_t offset;     // expression
  uint32_t first_dim;  // in lists
  uint32_t dims;
};

struct Cubin {
  uint8_t sha256[32];
  uint64_t size;
};

struct Kernel {
  uint32_t cubin;
  StrRef function;
  uint32_t block[3];
  uint32_t shared;
  uint32_t param_bytes;
  uint32_t first_attribute;
  uint32_t attributes;
  int32_t carveout;
  uint32_t flags;
};

struct Attribute {
  uint32_t id;
  uint32_t zero;
  uint8_t value[64];
};

struct Node {
  NodeKind kind;
  When when;
  uint16_t zero;
  uint32_t target;   // kernel or gemm
  uint32_t grid[3];  // expressions
  uint32_t first_param;
  uint32_t params;
};

struct Param {
  ParamKind kind;
  uint8_t access;
  uint16_t zero;
  uint32_t offset;
  uint32_t region;
  uint32_t expr;  // of BYTES: where they begin in the bytes section
  uint32_t size;
  uint32_t last;  // zero
};

struct Gemm {
  uint32_t m;  // expression
  uint32_t n;
  uint32_t k;
  uint8_t dtype;
  uint8_t flags;
  uint8_t out;  // dtype of c and d where it is scaled, else 0
  Scales scales;
};

struct Variant {
  uint32_t n;
  uint32_t k;
  uint8_t dtype;
  uint8_t flags;
  uint8_t out;
  Scales scales;
  uint32_t max_rows;
  uint32_t kernel;
  uint32_t tile_rows;
  uint32_t tile_n;
  uint32_t split_k;
  uint32_t reduce_kernel;
};

struct Segment {
  SegmentKind kind;
  uint8_t zero[3];
  StrRef name;
  uint32_t first_node;
  uint32_t nodes;
};

struct Edge {
  uint32_t from;
  uint32_t to;
  uint8_t type;
  uint8_t from_port;
  uint8_t to_port;
  uint8_t zero;
};

static_assert(sizeof(Header) == 40 && offsetof(Header, size) == 16 &&
              offsetof(Header, sections) == 24 && offsetof(Header, zero64) == 32);
static_assert(sizeof(Entry) == 24 && offsetof(Entry, offset) == 8 && offsetof(Entry, count) == 16);
static_assert(sizeof(StrRef) == 8 && offsetof(StrRef, length) == 4);
static_assert(sizeof(Symbol) == 24 && offsetof(Symbol, low) == 8 && offsetof(Symbol, high) == 16);
static_assert(sizeof(Expr) == 16 && offsetof(Expr, a) == 4 && offsetof(Expr, b) == 8);
static_assert(sizeof(Region) == 16 && offsetof(Region, index) == 4 && offsetof(Region, size) == 8 &&
              offsetof(Region, alignment) == 12);
static_assert(sizeof(Tensor) == 36 && offsetof(Tensor, target) == 8 &&
              offsetof(Tensor, role) == 16 && offsetof(Tensor, dtype) == 17 &&
              offsetof(Tensor, zero) == 18 && offsetof(Tensor, region) == 20 &&
              offsetof(Tensor, offset) == 24 && offsetof(Tensor, first_dim) == 28 &&
              offsetof(Tensor, dims) == 32);
static_assert(sizeof(Cubin) == 40 && offsetof(Cubin, size) == 32);
static_assert(sizeof(Kernel) == 48 && offsetof(Kernel, function) == 4 &&
              offsetof(Kernel, block) == 12 && offsetof(Kernel, shared) == 24 &&
              offsetof(Kernel, param_bytes) == 28 && offsetof(Kernel, first_attribute) == 32 &&
              offsetof(Kernel, attributes) == 36 && offsetof(Kernel, carveout) == 40 &&
              offsetof(Kernel, flags) == 44);
static_assert(sizeof(Attribute) == 72 && offsetof(Attribute, value) == 8);
static_assert(sizeof(Node) == 28 && offsetof(Node, when) == 1 && offsetof(Node, zero) == 2 &&
              offsetof(Node, target) == 4 && offsetof(Node, grid) == 8 &&
              offsetof(Node, first_param) == 20 && offsetof(Node, params) == 24);
static_assert(sizeof(Param) == 24 && offsetof(Param, access) == 1 && offsetof(Param, zero) == 2 &&
              offsetof(Param, offset) == 4 && offsetof(Param, region) == 8 &&
              offsetof(Param, expr) == 12 && offsetof(Param, size) == 16 &&
              offsetof(Param, last) == 20);
static_assert(sizeof(Gemm) == 16 && offsetof(Gemm, n) == 4 && offsetof(Gemm, k) == 8 &&
              offsetof(Gemm, dtype) == 12 && offsetof(Gemm, flags) == 13 &&
              offsetof(Gemm, out) == 14 && offsetof(Gemm, scales) == 15);
static_assert(sizeof(Variant) == 36 && offsetof(Variant, dtype) == 8 &&
              offsetof(Variant, flags) == 9 && offsetof(Variant, out) == 10 &&
              offsetof(Variant, scales) == 11 && offsetof(Variant, max_rows) == 12 &&
              offsetof(Variant, kernel) == 16 && offsetof(Variant, tile_rows) == 20 &&
              offsetof(Variant, tile_n) == 24 && offsetof(Variant, split_k) == 28 &&
              offsetof(Variant, reduce_kernel) == 32);
static_assert(sizeof(Segment) == 20 && offsetof(Segment, name) == 4 &&
              offsetof(Segment, first_node) == 12 && offsetof(Segment, nodes) == 16);
static_assert(sizeof(Edge) == 12 && offsetof(Edge, to) == 4 && offsetof(Edge, type) == 8 &&
              offsetof(Edge, from_port) == 9 && offsetof(Edge, to_port) == 10 &&
              offsetof(Edge, zero) == 11);

// Bytes of an element by dtype code: float64, float32, float16, bfloat16, float8_e4m3fn,
// float8_e5m2, int64, int32, int16, int8, uint8, bool.
constexpr uint8_t kItemSizes[] = {8, 4, 2, 2, 1, 1, 8, 4, 2, 1, 1, 1};
constexpr uint8_t kDtypes = sizeof(kItemSizes);
constexpr uint8_t kFloat32 = 1, kBfloat16 = 3, kFloat8E4m3 = 4;  // float16 is between

// Bounds; the most records of a section stand in check_frame.
constexpr uint64_t kMostBytes = 64 << 20;
constexpr int64_t kMostSymbol = (int64_t{1} << 53) - 1;
constexpr uint32_t kMostName = 512, kMostDims = 16, kMostTerms = 1024;
constexpr uint32_t kMostRegionAlignment = 2 << 20;
constexpr uint64_t kMostCubin = 1 << 30;
constexpr uint32_t kMostAttributes = 16, kMostAttributeId = 255;
constexpr uint32_t kMostParams = 1024, kMostParamBytes = 4096;
constexpr uint32_t kMostShared = 232448, kMostThreads = 1024;
constexpr uint32_t kPeers = 64;
constexpr uint32_t kScaleBlock = 128;

// Indices of OPERAND regions: a, w, c, d, workspace, scales of a, scales of w.
constexpr uint32_t kOperands = 7, kWorkspaceOperand = 4, kAScale = 5, kWScale = 6;
// What entries of the GEMM store may ask of the addresses of their operands; and of the columns of
// a weight's scales of blocks, which in a table lie as many apart as there are.
constexpr uint32_t kStoredAlignment = 256, kStoredScaleColumns = 4;
constexpr uint32_t kGridLimits[3] = {0x7FFFFFFF, 65535, 65535};

// Parameter blocks: of a variant a, w, c, d, partials, then rows, n, k as i32, then two null
// pointers (of a scaled product a, w, scales of a, scales of w, c, d, then rows as i32, then two
// null pointers); of its reduction partials, c, d, then rows, n as i32, then two null pointers; of
// a product a, w, c, d, scales of a, scales of w; of the other nodes that are no kernels
// kFixedBlock.
constexpr uint32_t kVariantBlock = 72, kReduceBlock = 48, kGemmBlock = 48, kFixedBlock = 40;

}  // namespace vcc::table
