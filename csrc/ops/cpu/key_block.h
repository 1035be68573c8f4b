// The two ways to score a block of keys and to add its values: read in place from the paged cache
// (few query rows: the work is memory traffic), or packed to fp32 panels once per tile (many rows:
// the work is arithmetic).
#pragma once

#include "gemm.h"
#include "kernels.h"

namespace vcc {
namespace VCC_ISA {
namespace {

// Up to kKeyBlock keys, found through the block table. Pointers past `count` repeat the last key,
// so a kernel may read (and ignore) a whole group.
template <class T>
struct KeyBlock {
  const T* k[kKeyBlock];
  const T* v[kKeyBlock];
  int count;
};

template <class T>
void find_keys(const AttentionArgs& a, int64_t sequence, int64_t kv_head, int64_t first, int count,
               KeyBlock<T>& keys) {
  keys.count = count;
  if (count == 0) return;
  const int32_t* table = a.block_table + sequence * a.table_stride;
  int64_t block = first / a.block_size, slot = first % a.block_size;
  for (int j = 0; j < count; ++j) {
    const int64_t offset =
        table[block] * a.block_stride + slot * a.slot_stride + kv_head * a.head_stride;
    keys.k[j] = static_cast<const T*>(a.k) + offset;
    keys.v[j] = static_cast<const T*>(a.v) + offset;
    if (++slot == a.block_size) slot = 0, ++block;
  }
  for (int j = count; j < kKeyBlock; ++j) keys.k[j] = keys.k[count - 1];
}

// Ask for rows that are read one block later: paged rows are short and scattered, so the hardware
// does not see them coming.
template <class T>
VCC_INLINE void prefetch(const T* const* rows, int count, int64_t dim) {
  constexpr int kLine = 64 / sizeof(T);
  for (int j = 0; j < count; ++j) {
    for (int64_t d = 0; d < dim; d += kLine) __builtin_prefetch(rows[j] + d, 0, 2);
  }
}

// Scores of Rows query rows against kWidth / Rows keys: one accumulator a pair, then one tree of
// lane sums for all of them.
template <int Rows, class T>
VCC_INLINE void score_group(const float* q, int64_t ldq, const T* const* k, int64_t dim, float* s) {
  constexpr int kKeys = kWidth / Rows;
  const int64_t whole = dim / kWidth * kWidth;
  VecF acc[kWidth] = {};
  for (int64_t d = 0; d < whole; d += kWidth) {
    VecF rows[Rows];
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) rows[i] = load(q + i * ldq + d);
#pragma GCC unroll 16
    for (int j = 0; j < kKeys; ++j) {
      const VecF key = load(k[j] + d);
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i) acc[i * kKeys + j] += rows[i] * key;
    }
  }
  if (whole < dim) {
    for (int j = 0; j < kKeys; ++j) {
      const VecF key = load_part(k[j] + whole, static_cast<int>(dim - whole));
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i) acc[i * kKeys + j] += load(q + i * ldq + whole) * key;
    }
  }
  float lanes[kWidth];
  store(lanes, sum_rows(acc));
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) {
    __builtin_memcpy(s + i * kKeyBlock, lanes + i * kKeys, sizeof(float) * kKeys);
  }
}

template <int Rows, class T>
void score_rows(const float* q, int64_t ldq, const KeyBlock<T>& keys, int64_t dim, float* s) {
  constexpr int kKeys = kWidth / Rows;
  for (int j = 0; j < keys.count; j += kKeys) {
    score_group<Rows>(q, ldq, keys.k + j, dim, s + j);
  }
}

// S[row, j] for rows [row, end) of Q, keys read in place.
template <class T>
void score_direct(const float* q, int64_t ldq, const KeyBlock<T>& keys, int64_t dim, float* s,
                  int64_t row, int64_t end) {
  while (row < end) {
    const int64_t left = end - row, rows = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    const auto score = rows == 4   ? score_rows<4, T>
                       : rows == 2 ? score_rows<2, T>
                                   : score_rows<1, T>;
    score(q + row * ldq, ldq, keys, dim, s + row * kKeyBlock);
    row += rows;
  }
}

// O = alpha O + P V for Rows rows and Vecs vectors of the head, values read in place.
template <int Rows, int Vecs, class T>
VCC_INLINE void add_values(const float* p, const KeyBlock<T>& keys, const float* alpha, float* o,
                           int64_t ldo, int64_t first) {
  VecF acc[Rows][Vecs];
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int d = 0; d < Vecs; ++d) acc[i][d] = load(o + i * ldo + first + d * kWidth) * alpha[i];
  }
  for (int j = 0; j < keys.count; ++j) {
    const T* v = keys.v[j] + first;
    VecF value[Vecs];
#pragma GCC unroll 8
    for (int d = 0; d < Vecs; ++d) value[d] = load(v + d * kWidth);
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) {
      const VecF weight = splat(p[i * kKeyBlock + j]);
#pragma GCC unroll 8
      for (int d = 0; d < Vecs; ++d) acc[i][d] += weight * value[d];
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int d = 0; d < Vecs; ++d) store(o + i * ldo + first + d * kWidth, acc[i][d]);
  }
}

template <int Rows, class T>
void add_value_rows(const float* p, const KeyBlock<T>& keys, const float* alpha, float* o,
                    int64_t ldo, int64_t dim) {
  constexpr int kVecs = kWidth == 16 ? 4 : 2;
  int64_t d = 0;
  for (; d + kVecs * kWidth <= dim; d += kVecs * kWidth) {
    add_values<Rows, kVecs>(p, keys, alpha, o, ldo, d);
  }
  for (; d + kWidth <= dim; d += kWidth) add_values<Rows, 1>(p, keys, alpha, o, ldo, d);
  for (; d < dim; ++d) {  // a head size that is no multiple of the vector
    for (int i = 0; i < Rows; ++i) {
      float sum = o[i * ldo + d] * alpha[i];
      for (int j = 0; j < keys.count; ++j) sum += p[i * kKeyBlock + j] * to_float(keys.v[j][d]);
      o[i * ldo + d] = sum;
    }
  }
}

// O[row] = alpha[row] O[row] + P[row] V for rows [row, end).
template <class T>
void values_direct(const float* p, const KeyBlock<T>& keys, const float* alpha, float* o,
                   int64_t ldo, int64_t dim, int64_t row, int64_t end) {
  while (row < end) {
    const int64_t left = end - row, rows = left >= 4 ? 4 : left >= 2 ? 2 : 1;
    const auto add = rows == 4   ? add_value_rows<4, T>
                     : rows == 2 ? add_value_rows<2, T>
                                 : add_value_rows<1, T>;
    add(p + row * kKeyBlock, keys, alpha + row, o + row * ldo, ldo, dim);
    row += rows;
  }
}

template <class T>
VCC_INLINE VecF load_or_part(const T* p, int64_t left) {
  return left >= kWidth ? load(p) : load_part(p, static_cast<int>(left));
}

// Keys as [padded dim][kKeyBlock] and values as [kKeyBlock][padded dim], absent ones zero: a score
// or a weight of an absent key is ignored, but 0 * NaN would not be.
template <class T>
void pack_keys(const KeyBlock<T>& keys, int64_t dim, int64_t padded, float* k, float* v) {
  for (int first = 0; first < kKeyBlock; first += kWidth) {
    for (int64_t d = 0; d < padded; d += kWidth) {
      VecF square[kWidth];
#pragma GCC unroll 16
      for (int j = 0; j < kWidth; ++j) {
        square[j] = first + j < keys.count ? load_or_part(keys.k[first + j] + d, dim - d) : VecF{};
      }
      transpose(square);
#pragma GCC unroll 16
      for (int j = 0; j < kWidth; ++j) store(k + (d + j) * kKeyBlock + first, square[j]);
    }
  }
  for (int j = 0; j < kKeyBlock; ++j) {
    for (int64_t d = 0; d < padded; d += kWidth) {
      const VecF value = j < keys.count ? load_or_part(keys.v[j] + d, dim - d) : VecF{};
      store(v + j * padded + d, value);
    }
  }
}

}  // namespace
}  // namespace VCC_ISA
}  // namespace vcc
