// CUDA's words for the host: kernels of csrc/kernels run here thread by thread, as fibers.
//
// A block's threads take turns at barriers and shuffles, in an order that the test chooses. Every
// access is looked up among the memory that the launch may use; a wait that cannot end is told.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#define __device__

namespace host {

struct Dim {
  unsigned x;
};
struct Thread {
  Dim index, block, size;
};

const Thread& thread();
void sync_block();
uint32_t exchanged(uint32_t value, int apart);

// Whether the bytes lie in memory that was allowed; the first that do not become the error.
bool reached(const void* address, size_t bytes, bool write);

template <class T>
T read(const T* from) {
  T value{};
  if (reached(from, sizeof(T), false)) std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void write(T* to, const T& value) {
  if (reached(to, sizeof(T), true)) std::memcpy(to, &value, sizeof(T));
}

uint16_t float_to_bf16(float value);
uint16_t float_to_half(float value);
float half_to_float(uint16_t bits);

// A kernel by its name: how many threads it allows, the sizes of its parameters, and its body.
struct Entry {
  template <class... A>
  Entry(const char* name, int threads, void (*function)(A...)) {
    const auto run = [function](void** given) {
      call(function, given, std::index_sequence_for<A...>{});
    };
    add(name, threads, {sizeof(A)...}, run);
  }

 private:
  template <class... A, size_t... I>
  static void call(void (*function)(A...), void** given, std::index_sequence<I...>) {
    function(*static_cast<std::remove_const_t<A>*>(given[I])...);
  }
  static void add(const char* name, int threads, std::vector<size_t> sizes,
                  std::function<void(void**)> run);
};

}  // namespace host

#define __shared__ static
#define threadIdx (host::thread().index)
#define blockIdx (host::thread().block)
#define blockDim (host::thread().size)
#define __syncthreads host::sync_block

inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

template <class T>
T __shfl_xor_sync(uint32_t, T value, int apart) {
  static_assert(sizeof(T) == 4);
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = host::exchanged(bits, apart);
  std::memcpy(&value, &bits, 4);
  return value;
}

// What another lane has.
template <class T>
T __shfl_sync(uint32_t all, T value, int lane) {
  return __shfl_xor_sync(all, value, static_cast<int>(threadIdx.x % 32) ^ lane);
}

inline bool __any_sync(uint32_t all, bool value) {
  uint32_t found = value;
  for (int apart = 16; apart > 0; apart /= 2) found |= __shfl_xor_sync(all, found, apart);
  return found != 0;
}

inline int __clz(int x) { return __builtin_clz(static_cast<unsigned>(x)); }

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

struct uint2 {
  uint32_t x, y;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
