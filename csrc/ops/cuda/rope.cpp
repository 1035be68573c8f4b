// Rotary embedding and the paged cache on CUDA tensors.
#include "ops.h"
#include "shape.h"
#include "tensors.h"

namespace vcc::cuda {
namespace {

constexpr int64_t kMostThreads = 256, kHeadsAtOnce = 2, kChunksAtOnce = 2;

struct Cache {
  int64_t block_size, width, plane, block_stride, slot_stride;
  bool fp8;
};

Cache cache_of(const Tensor& cache, const Tensor& slots, const Tensor& k, const char* op) {
  check_dims(cache, 5, op, "kv_cache");
  const bool fp8 = cache.scalar_type() == ScalarType::Float8_e4m3fn;
  if (!fp8) check_same_dtype(cache, k, op, "kv_cache", "k");
  check_place(cache, k, op, "kv_cache");
  check_place(slots, k, op, "slot_mapping");
  check_type(slots, ScalarType::Int, op, "slot_mapping");
  check_dims(slots, 1, op, "slot_mapping");
  check_size(slots, 0, k.size(0), op, "slot_mapping", "the tokens of k");
  VCC_CHECK(cache.size(3) <= 1 || cache.stride(3) == cache.size(4), op,
            ": the heads of a slot of kv_cache must lie one after another");
  return {cache.size(2),   cache.size(3) * cache.size(4),
          cache.stride(0), cache.stride(1),
          cache.stride(2), fp8};
}

// The kernels of an fp8 cache have a name of their own and take scales, null for ones.
std::string cached_symbol(const char* op, const Cache& cache, const Tensor& t, const char* name) {
  return std::string("vcc_") + op + (cache.fp8 ? "_fp8_" : "_") + suffix_of(t, op, name);
}

void add_scales(Launch& launch, const Cache& cache, const std::optional<Tensor>& scale,
                const Tensor& k, const char* op) {
  if (scale) {
    VCC_CHECK(cache.fp8, op, ": kv_scale goes with a float8_e4m3fn cache");
    check_dims(*scale, 1, op, "kv_scale");
    check_place(*scale, k, op, "kv_scale");
    check_type(*scale, ScalarType::Float, op, "kv_scale");
    check_size(*scale, 0, 2, op, "kv_scale", "keys and values");
    launch.tensor(*scale);
  } else if (cache.fp8) {
    launch.i64(0);
  }
}

void check_rows(const Tensor& t, const Tensor& like, int64_t width, const char* op,
                const char* name) {
  check_dims(t, 2, op, name);
  check_place(t, like, op, name);
  check_same_dtype(t, like, op, name, "the first argument");
  check_size(t, 0, like.size(0), op, name, "the tokens of the first argument");
  if (width >= 0) check_size(t, 1, width, op, name, "kv_heads * head_dim of kv_cache");
}

void check_angles(const Tensor& t, const Tensor& q, int64_t half, const char* op,
                  const char* name) {
  check_dims(t, 2, op, name);
  check_place(t, q, op, name);
  check_type(t, ScalarType::Float, op, name);
  check_size(t, 0, q.size(0), op, name, "the tokens of q");
  check_size(t, 1, half, op, name, "the columns of cos");
}

struct Heads {
  int64_t query, key, dim, half, lanes;
};

// The launch of so many heads of each token: of few, 2^shift blocks take one.
struct HeadShape {
  int64_t threads, shift;

  HeadShape(int64_t tokens, int64_t lanes, int64_t heads)
      : threads(std::min(kMostThreads, warps(lanes * ceildiv(heads, kHeadsAtOnce)))), shift(0) {
    while (threads << shift < lanes * heads) ++shift;
    if (tokens > most_few(int64_t{1} << shift)) shift = 0;
  }
};

Heads heads_of(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin,
               int64_t head_dim, const char* op) {
  check_dims(q, 2, op, "q");
  check_rows(k, q, -1, op, "k");
  check_dims(cos, 2, op, "cos");
  const int64_t half = cos.size(1);
  check_angles(cos, q, half, op, "cos");
  check_angles(sin, q, half, op, "sin");
  VCC_CHECK(head_dim > 0 && q.size(1) % head_dim == 0 && k.size(1) % head_dim == 0, op,
            ": q and k must have whole heads of ", head_dim);
  VCC_CHECK(2 * half <= head_dim, op, ": cos rotates ", 2 * half, " values, more than head_dim ",
            head_dim);
  const int64_t values = kChunk / static_cast<int64_t>(q.element_size());
  const int64_t units = ceildiv(half, values) + ceildiv(head_dim - 2 * half, 2 * values);
  VCC_CHECK(units <= kWarp, op, ": heads of ", head_dim, " values are too large for the kernel");
  return {q.size(1) / head_dim, k.size(1) / head_dim, head_dim, half, power_of_two(units)};
}

void add_heads(Launch& launch, const Heads& heads, const HeadShape& shape) {
  launch.i32(heads.query).i32(heads.key).i32(heads.dim).i32(heads.half).i32(heads.lanes);
  launch.i32(shape.shift);
}

void run(Launch& launch, const std::string& symbol, const HeadShape& shape, const Tensor& q) {
  launch.run(symbol, q.size(0) << shape.shift, static_cast<int>(shape.threads), q);
}

std::string symbol_of(const char* op, const Tensor& t, const char* name) {
  return std::string("vcc_") + op + "_" + suffix_of(t, op, name);
}

}  // namespace

std::tuple<Tensor, Tensor> rotary_embedding(const Tensor& q, const Tensor& k, const Tensor& cos,
                                            const Tensor& sin, int64_t head_dim) {
  const char* op = "rotary_embedding";
  const std::string symbol = symbol_of(op, q, "q");
  const Heads heads = heads_of(q, k, cos, sin, head_dim, op);
  const Tensor q_out = torch::stable::new_empty(q, q.sizes());
  const Tensor k_out = torch::stable::new_empty(k, k.sizes());
  Launch launch(op);
  launch.tensor(q).tensor(k).tensor(cos).tensor(sin).tensor(q_out).tensor(k_out);
  const HeadShape shape(q.size(0), heads.lanes, heads.query + heads.key);
  add_heads(launch, heads, shape);
  launch.i64(q.stride(0)).i64(k.stride(0)).i64(cos.stride(0)).i64(sin.stride(0));
  run(launch, symbol, shape, q);
  return {q_out, k_out};
}

std::tuple<Tensor, Tensor> qk_norm_rope(const Tensor& q, const Tensor& k, const Tensor& q_weight,
                                        const Tensor& k_weight, const Tensor& cos,
                                        const Tensor& sin, int64_t head_dim, double eps,
                                        double weight_offset) {
  const char* op = "qk_norm_rope";
  const std::string symbol = symbol_of(op, q, "q");
  const Heads heads = heads_of(q, k, cos, sin, head_dim, op);
  for (const Tensor* weight : {&q_weight, &k_weight}) {
    const char* name = weight == &q_weight ? "q_weight" : "k_weight";
    check_place(*weight, q, op, name);
    check_same_dtype(*weight, q, op, name, "q");
    check_dims(*weight, 1, op, name);
    check_size(*weight, 0, head_dim, op, name, "head_dim");
  }
  const Tensor q_out = torch::stable::new_empty(q, q.sizes());
  const Tensor k_out = torch::stable::new_empty(k, k.sizes());
  const Tensor q_gain = dense(q_weight), k_gain = dense(k_weight);
  Launch launch(op);
  launch.tensor(q).tensor(k).tensor(q_gain).tensor(k_gain).tensor(cos).tensor(sin);
  launch.tensor(q_out).tensor(k_out);
  const HeadShape shape(q.size(0), heads.lanes, heads.query + heads.key);
  add_heads(launch, heads, shape);
  launch.i64(q.stride(0)).i64(k.stride(0)).i64(cos.stride(0)).i64(sin.stride(0));
  launch.f32(eps).f32(weight_offset);
  run(launch, symbol, shape, q);
  return {q_out, k_out};
}

void kv_write(const Tensor& k, const Tensor& v, const Tensor& kv_cache, const Tensor& slot_mapping,
              std::optional<Tensor> kv_scale) {
  const char* op = "kv_write";
  check_dims(k, 2, op, "k");
  const Cache cache = cache_of(kv_cache, slot_mapping, k, op);
  const std::string symbol = cached_symbol(op, cache, k, "k");
  check_rows(k, k, cache.width, op, "k");
  check_rows(v, k, cache.width, op, "v");
  Launch launch(op);
  launch.tensor(k).tensor(v).tensor(kv_cache).tensor(slot_mapping);
  launch.i32(cache.width).i32(cache.block_size).i64(k.stride(0)).i64(v.stride(0));
  launch.i64(cache.plane).i64(cache.block_stride).i64(cache.slot_stride);
  add_scales(launch, cache, kv_scale, k, op);
  const int64_t chunks = chunks_of(cache.width, static_cast<int64_t>(k.element_size()));
  const int64_t threads = std::min(kMostThreads, warps(ceildiv(chunks, kChunksAtOnce)));
  launch.run(symbol, k.size(0), static_cast<int>(threads), k);
}

void rope_kv_write(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos,
                   const Tensor& sin, const Tensor& kv_cache, const Tensor& slot_mapping,
                   const Tensor& q_out, int64_t head_dim, std::optional<Tensor> kv_scale) {
  const char* op = "rope_kv_write";
  const Heads heads = heads_of(q, k, cos, sin, head_dim, op);
  const Cache cache = cache_of(kv_cache, slot_mapping, k, op);
  const std::string symbol = cached_symbol(op, cache, q, "q");
  check_rows(k, q, cache.width, op, "k");
  check_rows(v, q, cache.width, op, "v");
  check_rows(q_out, q, -1, op, "q_out");
  VCC_CHECK(q_out.sizes().equals(q.sizes()) && q_out.is_contiguous(), op,
            ": q_out must be contiguous and of the shape of q");
  Launch launch(op);
  launch.tensor(q).tensor(k).tensor(v).tensor(cos).tensor(sin);
  launch.tensor(kv_cache).tensor(slot_mapping).tensor(q_out);
  const HeadShape shape(q.size(0), heads.lanes, heads.query + 2 * heads.key);
  add_heads(launch, heads, shape);
  launch.i32(cache.block_size).i64(q.stride(0)).i64(k.stride(0)).i64(v.stride(0));
  launch.i64(cos.stride(0)).i64(sin.stride(0));
  launch.i64(cache.plane).i64(cache.block_stride).i64(cache.slot_stride);
  add_scales(launch, cache, kv_scale, q, op);
  run(launch, symbol, shape, q);
}

}  // namespace vcc::cuda
