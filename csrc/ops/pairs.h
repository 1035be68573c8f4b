// Pairs of a row and one of its experts, in order of expert, then of row.
#pragma once

#include <vector>

#include "check.h"

namespace vcc {

struct Pairs {
  std::vector<int64_t> first, next;  // first pair of each expert, then the number of pairs
  std::vector<int32_t> token;        // row of each pair
  std::vector<float> weight;

  // Of `weights` and `ids` [tokens][top_k], whose shapes and types have been checked.
  void sort(const Tensor& weights, const Tensor& ids, int64_t experts, const char* op) {
    const int32_t* id = static_cast<const int32_t*>(ids.const_data_ptr());
    const float* factor = static_cast<const float*>(weights.const_data_ptr());
    const int64_t tokens = ids.size(0), top_k = ids.size(1);
    count(id, ids, experts, op);
    token.resize(tokens * top_k), weight.resize(tokens * top_k);
    next.assign(first.begin(), first.end());
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t j = 0; j < top_k; ++j) {
        const int64_t place = next[id[t * ids.stride(0) + j]]++;
        token[place] = static_cast<int32_t>(t), weight[place] = factor[t * weights.stride(0) + j];
      }
    }
  }

 private:
  void count(const int32_t* id, const Tensor& ids, int64_t experts, const char* op) {
    first.assign(experts + 1, 0);
    for (int64_t t = 0; t < ids.size(0); ++t) {
      for (int64_t j = 0; j < ids.size(1); ++j) {
        const int64_t expert = id[t * ids.stride(0) + j];
        VCC_CHECK(expert >= 0 && expert < experts, op, ": ids[", t, ", ", j, "] is ", expert,
                  ", outside the ", experts, " experts of gate_up");
        ++first[expert + 1];
      }
    }
    for (int64_t i = 0; i < experts; ++i) first[i + 1] += first[i];
  }
};

}  // namespace vcc
