// The k likeliest experts of each row of logits, likeliest first; of equal ones the lower number.
#pragma once

#include "rows.cuh"

namespace vcc {

constexpr int kMostEach = 16;  // logits of a lane: 512 experts at most
constexpr int kNobody = 0x7fffffff;

template <class T>
struct Router {
  const T* logits;
  float* weights;
  int* ids;
  int rows, experts, top_k;  // top_k of 32 at most
  int64_t stride;
  bool renormalise;
};

// NaN goes before every number, as in torch.topk.
__device__ inline bool before(float a, int a_id, float b, int b_id) {
  const bool a_odd = a != a, b_odd = b != b;
  if (a_odd || b_odd) return a_odd && (!b_odd || a_id < b_id);
  return a > b || (a == b && a_id < b_id);
}

// Probabilities in place of a row's logits, of which each lane holds every 32nd.
template <bool kSigmoid>
__device__ inline void to_probabilities(float (&p)[kMostEach], int experts, int lane) {
  if constexpr (kSigmoid) {
#pragma unroll
    for (float& value : p) value = 1.0f / (1.0f + expf(-value));
    return;
  }
  float most = p[0];
#pragma unroll
  for (const float value : p) most = larger(most, value);
  for (int apart = kWarp / 2; apart > 0; apart /= 2) {
    most = larger(most, __shfl_xor_sync(kAll, most, apart));
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kMostEach; ++i) {
    p[i] = expf(p[i] - most);
    sum += lane + i * kWarp < experts ? p[i] : 0.0f;
  }
  sum = over_lanes<Sum>(sum, kWarp);
#pragma unroll
  for (float& value : p) value /= sum;
}

template <bool kSigmoid, class T>
__device__ inline void route(const Router<T>& r) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (row >= r.rows) return;  // a whole warp
  float p[kMostEach];
#pragma unroll
  for (int i = 0; i < kMostEach; ++i) {
    const int id = lane + i * kWarp;
    p[i] = id < r.experts ? wide(read_value(r.logits + row * r.stride + id)) : -INFINITY;
  }
  to_probabilities<kSigmoid>(p, r.experts, lane);
  uint32_t taken = 0;  // a bit for each of this lane's logits
  float mine = 0.0f, sum = 0.0f;
  int my_id = 0;
  for (int turn = 0; turn < r.top_k; ++turn) {
    float best = -INFINITY;
    int best_id = kNobody;
#pragma unroll
    for (int i = 0; i < kMostEach; ++i) {
      const int id = lane + i * kWarp;
      const bool open = id < r.experts && (taken >> i & 1) == 0;
      if (open && before(p[i], id, best, best_id)) best = p[i], best_id = id;
    }
    for (int apart = kWarp / 2; apart > 0; apart /= 2) {
      const float other = __shfl_xor_sync(kAll, best, apart);
      const int other_id = __shfl_xor_sync(kAll, best_id, apart);
      if (before(other, other_id, best, best_id)) best = other, best_id = other_id;
    }
    if (best_id % kWarp == lane) taken |= 1u << best_id / kWarp;
    if (turn == lane) mine = best, my_id = best_id;
    sum += best;
  }
  if (lane >= r.top_k) return;
  write_value(r.weights + row * r.top_k + lane, r.renormalise ? mine / sum : mine);
  write_value(r.ids + row * r.top_k + lane, my_id);
}

}  // namespace vcc
