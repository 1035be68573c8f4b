// The likeliest experts of each row: softmax over all of them in fp32, then the first k.
#include "entries.h"

namespace vcc {
namespace VCC_ISA {
namespace {

// scores = e^(x - max), whose sum is returned; NaN and infinity spread as in a softmax.
template <class T>
float exponents(const T* x, int64_t count, float* scores) {
  float top = -__builtin_inff();
  for (int64_t i = 0; i < count; ++i) {
    const float value = to_float(x[i]);
    top = value > top || value != value ? value : top;
    scores[i] = value;
  }
  float sum = 0;
  for (int64_t i = 0; i < count; i += kWidth) {
    const int64_t left = count - i;
    const int n = left < kWidth ? static_cast<int>(left) : kWidth;
    float lanes[kWidth];
    store(lanes, exp(load_part(scores + i, n) - top));
    for (int j = 0; j < n; ++j) sum += scores[i + j] = lanes[j];
  }
  return sum;
}

// The place of the largest score, the first of equal ones; a NaN is the largest.
int64_t largest(const float* scores, int64_t count) {
  int64_t best = 0;
  while (best + 1 < count && scores[best] < 0) ++best;
  for (int64_t i = best + 1; i < count; ++i) {
    const bool first = scores[best] == scores[best];
    if (first && (scores[i] > scores[best] || scores[i] != scores[i])) best = i;
  }
  return best;
}

}  // namespace

template <class T>
void route(const RouterArgs& a, int64_t begin, int64_t end, float* scores) {
  constexpr float kTaken = -1;  // below every probability
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(a.logits) + row * a.stride;
    float* weights = a.weights + row * a.top_k;
    int32_t* ids = a.ids + row * a.top_k;
    float sum = exponents(x, a.experts, scores), chosen = 0;
    for (int64_t i = 0; i < a.top_k; ++i) {
      const int64_t best = largest(scores, a.experts);
      ids[i] = static_cast<int32_t>(best);
      weights[i] = scores[best];
      chosen += scores[best];
      scores[best] = kTaken;
    }
    if (a.renormalise) sum = chosen;
    for (int64_t i = 0; i < a.top_k; ++i) weights[i] /= sum;
  }
}

template void route<float>(const RouterArgs&, int64_t, int64_t, float*);
template void route<BF16>(const RouterArgs&, int64_t, int64_t, float*);

}  // namespace VCC_ISA
}  // namespace vcc
