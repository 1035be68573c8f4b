// What operators of experts share: the checks of their arguments, and pairs of a row and one of its
// experts, in order of expert, then of row.
#pragma once

#include <vector>

#include "check.h"

namespace vcc {

struct ExpertShape {
  int64_t tokens, top_k, experts, hidden, width;
};

inline ExpertShape expert_shape(const Tensor& x, const Tensor& gate_up, const Tensor& down,
                                const Tensor& weights, const Tensor& ids, const char* op) {
  check_layout(x, 2, op, "x");
  check_layout(gate_up, 3, op, "gate_up");
  check_layout(down, 3, op, "down");
  check_layout(weights, 2, op, "weights");
  check_type(weights, ScalarType::Float, op, "weights");
  check_layout(ids, 2, op, "ids");
  check_type(ids, ScalarType::Int, op, "ids");
  const ExpertShape s{x.size(0), ids.size(1), gate_up.size(0), x.size(1), down.size(2)};
  check_size(gate_up, 1, 2 * s.width, op, "gate_up", "twice the last dimension of down");
  check_size(gate_up, 2, s.hidden, op, "gate_up", "the columns of x");
  check_size(down, 0, s.experts, op, "down", "the experts of gate_up");
  check_size(down, 1, s.hidden, op, "down", "the columns of x");
  check_size(ids, 0, s.tokens, op, "ids", "the rows of x");
  check_size(weights, 0, s.tokens, op, "weights", "the rows of x");
  check_size(weights, 1, s.top_k, op, "weights", "the columns of ids");
  return s;
}

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
