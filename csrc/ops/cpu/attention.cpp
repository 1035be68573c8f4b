// Paged attention of one tile: softmax over key blocks with a running maximum (Milakov and
// Gimelshein 2018, as in FlashAttention), all sums in fp32.
#include "entries.h"
#include "key_block.h"

namespace vcc {
namespace VCC_ISA {
namespace {

int64_t padded_dim(const AttentionArgs& a) { return (a.head_dim + kWidth - 1) / kWidth * kWidth; }

// Softmax in progress: sums of weighted values, running maxima, sums of weights.
struct Result {
  float* o;    // [rows][padded]
  float* top;  // [rows]
  float* sum;  // [rows]
};

Result result_at(float* memory, int64_t rows, int64_t padded) {
  return {memory, memory + rows * padded, memory + rows * (padded + 1)};
}

// What a tile works with. Row m is query row m / group, head m % group of the key head's group.
struct Tile {
  Result result;
  float *k, *v;  // packed panels
  float* s;      // [rows][kKeyBlock] scores, then weights
  float* q;      // [rows][padded], scaled
  float* alpha;  // [rows] factor of earlier sums when the maximum has grown
  int64_t rows, padded;
};

Tile lay_out(float* scratch, int64_t rows, int64_t padded, float* result) {
  Tile t{};
  t.rows = rows, t.padded = padded;
  t.k = scratch;
  t.v = t.k + padded * kKeyBlock;
  t.s = t.v + padded * kKeyBlock;
  t.q = t.s + rows * kKeyBlock;
  t.alpha = t.q + rows * padded;
  t.result = result_at(result ? result : t.alpha + rows, rows, padded);
  return t;
}

template <class T>
void read_queries(const AttentionArgs& a, const AttentionTile& tile, int64_t kv_head, Tile& t) {
  for (int64_t m = 0; m < t.rows; ++m) {
    const T* q = static_cast<const T*>(a.q) + (tile.row + m / a.group) * a.q_stride +
                 (kv_head * a.group + m % a.group) * a.head_dim;
    for (int64_t d = 0; d < t.padded; d += kWidth) {
      store(t.q + m * t.padded + d, load_or_part(q + d, a.head_dim - d) * a.scale);
      store(t.result.o + m * t.padded + d, VecF{});
    }
    t.result.top[m] = -__builtin_inff(), t.result.sum[m] = 0;
  }
}

// Scores -> weights of one row, of which keys [low, high) of the block are visible.
void weigh_row(const AttentionArgs& a, Tile& t, int64_t m, int low, int high) {
  float* s = t.s + m * kKeyBlock;
  VecF top = splat(t.result.top[m]);
  for (int j = low / kWidth * kWidth; j < high; j += kWidth) {
    VecF v = load(s + j);
    if (a.cap > 0) v = a.cap * tanh(v / a.cap);
    const VecI lane = lane_index() + j;
    v = (lane >= low) & (lane < high) ? v : splat(-__builtin_inff());
    store(s + j, v);
    top = max(v, top);
  }
  const float highest = max_lanes(top);
  VecF sum{};
  for (int j = 0; j < kKeyBlock; j += kWidth) {
    const bool seen = j + kWidth > low && j < high;
    const VecF weight = seen ? exp(load(s + j) - highest) : VecF{};
    store(s + j, weight);
    sum += weight;
  }
  t.alpha[m] = exp(splat(t.result.top[m] - highest))[0];
  t.result.sum[m] = t.result.sum[m] * t.alpha[m] + sum_lanes(sum);
  t.result.top[m] = highest;
}

int clamp(int64_t x, int high) { return x < 0 ? 0 : x > high ? high : static_cast<int>(x); }

// Weights of rows [begin, end) against the keys first .. first + count.
void weigh(const AttentionArgs& a, const AttentionTile& tile, Tile& t, int64_t first, int count,
           int64_t begin, int64_t end) {
  for (int64_t m = begin; m < end; ++m) {
    const int64_t position = tile.position + m / a.group - first;
    const int high = clamp(position + 1, count);
    const int low = a.window > 0 ? clamp(position + 1 - a.window, count) : 0;
    weigh_row(a, t, m, low, high);
  }
}

// The rows of the tile that see at least one of the keys first .. first + count.
struct Range {
  int64_t begin, end;
};
Range rows_that_see(const AttentionArgs& a, const AttentionTile& tile, int64_t first, int count) {
  const int64_t begin = first - tile.position;
  const int64_t end = a.window > 0 ? first + count - 1 + a.window - tile.position : tile.rows;
  return {(begin < 0 ? 0 : begin) * a.group, (end < tile.rows ? end : tile.rows) * a.group};
}

template <class K>
void add_block(const AttentionArgs& a, const AttentionTile& tile, Tile& t, int64_t first,
               const KeyBlock<K>& keys, const KeyBlock<K>& next) {
  const Range rows = rows_that_see(a, tile, first, keys.count);
  if (rows.begin >= rows.end) return;
  if (t.rows <= kDirectRows) {
    prefetch(next.k, next.count, a.head_dim);
    score_direct(t.q, t.padded, keys, a.head_dim, t.s, rows.begin, rows.end);
    weigh(a, tile, t, first, keys.count, rows.begin, rows.end);
    prefetch(next.v, next.count, a.head_dim);
    values_direct(t.s, keys, t.alpha, t.result.o, t.padded, a.head_dim, rows.begin, rows.end);
    return;
  }
  pack_keys(keys, a.head_dim, t.padded, t.k, t.v);
  gemm({t.q, t.k, t.s, nullptr, t.padded, kKeyBlock, kKeyBlock, a.head_dim}, rows.begin, rows.end,
       kKeyBlock / kWidth);
  weigh(a, tile, t, first, keys.count, rows.begin, rows.end);
  gemm({t.s, t.v, t.result.o, t.alpha, kKeyBlock, t.padded, t.padded, keys.count}, rows.begin,
       rows.end, t.padded / kWidth);
}

// Keys [first, end) of one sequence and key head, block by block.
template <class K>
void add_keys(const AttentionArgs& a, const AttentionTile& tile, int64_t kv_head, Tile& t,
              int64_t first, int64_t end) {
  KeyBlock<K> blocks[2];
  const auto find = [&](int64_t from, KeyBlock<K>& keys) {
    find_keys(a, tile.index, kv_head, from, clamp(end - from, kKeyBlock), keys);
  };
  find(first, blocks[0]);
  for (int side = 0; first < end; first += kKeyBlock, side ^= 1) {
    find(first + kKeyBlock, blocks[side ^ 1]);
    add_block<K>(a, tile, t, first, blocks[side], blocks[side ^ 1]);
  }
}

// out[row] = o / sum; a row that saw no key is zero.
template <class T>
void write_row(const AttentionArgs& a, const AttentionTile& tile, int64_t kv_head, int64_t m,
               const float* o, float sum) {
  T* out = static_cast<T*>(a.out) + (tile.row + m / a.group) * a.out_stride +
           (kv_head * a.group + m % a.group) * a.head_dim;
  const float factor = sum == 0 ? 0 : a.v_scale / sum;
  for (int64_t d = 0; d < a.head_dim; d += kWidth) {
    const VecF v = load(o + d) * factor;
    const int64_t left = a.head_dim - d;
    if (left >= kWidth) {
      store(out + d, v);
    } else {
      store_part(out + d, v, static_cast<int>(left));
    }
  }
}

}  // namespace

int64_t attention_partial(const AttentionArgs& a, int64_t rows) {
  return rows * (padded_dim(a) + 2);
}

int64_t attention_scratch(const AttentionArgs& a, int64_t rows) {
  const int64_t padded = padded_dim(a);
  return 2 * padded * kKeyBlock + rows * (kKeyBlock + padded + 1) + attention_partial(a, rows);
}

template <class T, class K>
void attend(const AttentionArgs& a, const AttentionTile& tile, int64_t kv_head, int64_t chunk,
            float* scratch, float* partials) {
  const int64_t rows = tile.rows * a.group;
  float* result = partials ? partials + chunk * attention_partial(a, rows) : nullptr;
  Tile t = lay_out(scratch, rows, padded_dim(a), result);
  read_queries<T>(a, tile, kv_head, t);
  const int64_t end = tile.position + tile.rows;  // keys that the last row sees
  const int64_t oldest = a.window > 0 ? tile.position + 1 - a.window : 0;
  const int64_t low = tile.chunks > 1 ? chunk * kSplitKeys : 0;
  const int64_t high = tile.chunks > 1 && low + kSplitKeys < end ? low + kSplitKeys : end;
  const int64_t start = oldest > low ? oldest / kKeyBlock * kKeyBlock : low;
  if (start < high) add_keys<K>(a, tile, kv_head, t, start, high);
  if (result) return;
  for (int64_t m = 0; m < rows; ++m) {
    write_row<T>(a, tile, kv_head, m, t.result.o + m * t.padded, t.result.sum[m]);
  }
}

// Chunk 0 becomes the joined result, so the partials are written.
template <class T>
void merge(const AttentionArgs& a, const AttentionTile& tile, int64_t kv_head, float* partials) {
  const int64_t rows = tile.rows * a.group, padded = padded_dim(a);
  const int64_t size = attention_partial(a, rows);
  const Result into = result_at(partials, rows, padded);
  for (int64_t c = 1; c < tile.chunks; ++c) {
    const Result from = result_at(partials + c * size, rows, padded);
    for (int64_t m = 0; m < rows; ++m) {
      if (from.sum[m] == 0) continue;  // this chunk lies before the row's window
      const float top = from.top[m] > into.top[m] ? from.top[m] : into.top[m];
      const float keep = exp(splat(into.top[m] - top))[0], add = exp(splat(from.top[m] - top))[0];
      for (int64_t d = m * padded; d < (m + 1) * padded; d += kWidth) {
        store(into.o + d, load(into.o + d) * keep + load(from.o + d) * add);
      }
      into.sum[m] = into.sum[m] * keep + from.sum[m] * add;
      into.top[m] = top;
    }
  }
  for (int64_t m = 0; m < rows; ++m) {
    write_row<T>(a, tile, kv_head, m, into.o + m * padded, into.sum[m]);
  }
}

#define VCC_ATTEND(T, K)                                                                           \
  template void attend<T, K>(const AttentionArgs&, const AttentionTile&, int64_t, int64_t, float*, \
                             float*);
VCC_ATTEND(float, float)
VCC_ATTEND(float, Fp8)
VCC_ATTEND(BF16, BF16)
VCC_ATTEND(BF16, Fp8)
#undef VCC_ATTEND
template void merge<float>(const AttentionArgs&, const AttentionTile&, int64_t, float*);
template void merge<BF16>(const AttentionArgs&, const AttentionTile&, int64_t, float*);

}  // namespace VCC_ISA
}  // namespace vcc
