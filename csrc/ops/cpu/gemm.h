// Small fp32 matrix product for packed attention tiles: C = A B, or C = diag(alpha) C + A B.
#pragma once

#include "vec.h"

namespace vcc {
namespace VCC_ISA {
namespace {

// Row-major operands in scratch memory. n counts vectors, so B and C rows are padded to kWidth.
struct Gemm {
  const float *a, *b;
  float* c;
  const float* alpha;  // one factor a row of C; null: C is overwritten
  int64_t lda, ldb, ldc, depth;
};

template <int Rows, int Vecs>
VCC_INLINE void gemm_tile(const Gemm& g, int64_t row, int64_t vec) {
  const float* a = g.a + row * g.lda;
  const float* b = g.b + vec * kWidth;
  float* c = g.c + row * g.ldc + vec * kWidth;
  VecF acc[Rows][Vecs];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Vecs; ++j) {
      acc[i][j] = g.alpha ? load(c + i * g.ldc + j * kWidth) * g.alpha[row + i] : VecF{};
    }
  }
  for (int64_t d = 0; d < g.depth; ++d, b += g.ldb) {
    VecF column[Vecs];
#pragma GCC unroll 8
    for (int j = 0; j < Vecs; ++j) column[j] = load(b + j * kWidth);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const VecF left = splat(a[i * g.lda + d]);
#pragma GCC unroll 8
      for (int j = 0; j < Vecs; ++j) acc[i][j] += left * column[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < Vecs; ++j) store(c + i * g.ldc + j * kWidth, acc[i][j]);
  }
}

template <int Rows, int Vecs>
void gemm_rest(const Gemm& g, int64_t row, int64_t rows, int64_t vec) {
  if constexpr (Rows > 0) {
    if (rows == Rows) return gemm_tile<Rows, Vecs>(g, row, vec);
    gemm_rest<Rows - 1, Vecs>(g, row, rows, vec);
  }
}

template <int Vecs>
void gemm_panel(const Gemm& g, int64_t row, int64_t end, int64_t vec) {
  for (; row + kTileRows <= end; row += kTileRows) gemm_tile<kTileRows, Vecs>(g, row, vec);
  gemm_rest<kTileRows - 1, Vecs>(g, row, end - row, vec);
}

template <int Vecs>
void gemm_last_panel(const Gemm& g, int64_t row, int64_t end, int64_t vec, int64_t vecs) {
  if constexpr (Vecs > 0) {
    if (vecs == Vecs) return gemm_panel<Vecs>(g, row, end, vec);
    gemm_last_panel<Vecs - 1>(g, row, end, vec, vecs);
  }
}

// Rows [row, end) of C, `vecs` vectors wide.
inline void gemm(const Gemm& g, int64_t row, int64_t end, int64_t vecs) {
  int64_t vec = 0;
  for (; vec + kTileVecs <= vecs; vec += kTileVecs) gemm_panel<kTileVecs>(g, row, end, vec);
  gemm_last_panel<kTileVecs - 1>(g, row, end, vec, vecs - vec);
}

}  // namespace
}  // namespace VCC_ISA
}  // namespace vcc
