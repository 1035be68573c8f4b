// Floating-point elements converted on their way to the device, each through float as torch does.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace vcc::weights {

// Dtype codes of node tables that can be converted into each other; others are copied as they are.
inline constexpr uint16_t kFloat64 = 0, kFloat32 = 1, kFloat16 = 2, kBfloat16 = 3;
inline constexpr uint16_t kDtypes = 12;

inline constexpr uint64_t kElementBytes[kDtypes] = {8, 4, 2, 2, 1, 1, 8, 4, 2, 1, 1, 1};

inline bool is_converted(uint16_t dtype) { return dtype <= kBfloat16; }

inline float from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest even; not-a-number becomes the quiet one.
inline uint16_t to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return value != value ? uint16_t{0x7fc0} : static_cast<uint16_t>(rounded);
}

// The magic numbers move the exponent by the difference of the biases (112) and let the
// floating-point unit normalise what is subnormal in half precision.
inline float from_float16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  const uint32_t exponent = rest & 0x0f800000u;
  uint32_t wide = rest + (112u << 23);
  if (exponent == 0x0f800000u) {
    wide += 112u << 23;
  } else if (exponent == 0) {
    const float small =
        std::bit_cast<float>(rest + (113u << 23)) - std::bit_cast<float>(113u << 23);
    wide = std::bit_cast<uint32_t>(small);
  }
  return std::bit_cast<float>(sign | wide);
}

inline uint16_t to_float16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t rest = bits & 0x7fffffffu;
  if (rest >= 0x47800000u) {  // 65536 and above, infinity, not-a-number
    return sign | (rest > 0x7f800000u ? uint16_t{0x7e00} : uint16_t{0x7c00});
  }
  if (rest < 0x38800000u) {  // below 2^-14: adding 0.5 shifts and rounds to the subnormal's bits
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000u);
  }
  const uint32_t rounded = rest - (112u << 23) + 0xfffu + ((rest >> 13) & 1u);
  return sign | static_cast<uint16_t>(rounded >> 13);
}

template <uint16_t Dtype>
float load(const void* at) {
  if constexpr (Dtype == kFloat64) {
    double value;
    std::memcpy(&value, at, sizeof(value));
    return static_cast<float>(value);
  } else if constexpr (Dtype == kFloat32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  } else {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof(bits));
    return Dtype == kFloat16 ? from_float16(bits) : from_bfloat16(bits);
  }
}

template <uint16_t Dtype>
void store(void* at, float value) {
  if constexpr (Dtype == kFloat64) {
    const double wide = value;
    std::memcpy(at, &wide, sizeof(wide));
  } else if constexpr (Dtype == kFloat32) {
    std::memcpy(at, &value, sizeof(value));
  } else {
    const uint16_t bits = Dtype == kFloat16 ? to_float16(value) : to_bfloat16(value);
    std::memcpy(at, &bits, sizeof(bits));
  }
}

// `count` neighbours at `from` to places `stride` elements apart at `to`.
using Convert = void (*)(const char* from, char* to, uint64_t count, uint64_t stride);

template <uint16_t From, uint16_t To>
void convert(const char* from, char* to, uint64_t count, uint64_t stride) {
  constexpr uint64_t wide = kElementBytes[From], narrow = kElementBytes[To];
  if (stride == 1) {  // a loop that the compiler turns into vector instructions
    for (uint64_t i = 0; i < count; ++i) store<To>(to + i * narrow, load<From>(from + i * wide));
  } else {
    for (uint64_t i = 0; i < count; ++i) {
      store<To>(to + i * stride * narrow, load<From>(from + i * wide));
    }
  }
}

template <uint64_t Bytes>
void scatter(const char* from, char* to, uint64_t count, uint64_t stride) {
  if (stride == 1) {
    std::memcpy(to, from, count * Bytes);
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * stride * Bytes, from + i * Bytes, Bytes);
  }
}

inline Convert same_bits(uint64_t bytes) {
  return bytes == 8 ? scatter<8> : bytes == 4 ? scatter<4> : bytes == 2 ? scatter<2> : scatter<1>;
}

template <uint16_t From>
Convert conversion_from(uint16_t to) {
  constexpr Convert table[] = {convert<From, kFloat64>, convert<From, kFloat32>,
                               convert<From, kFloat16>, convert<From, kBfloat16>};
  return table[to];
}

// How elements go from one dtype to another; null where that is not defined.
inline Convert conversion(uint16_t from, uint16_t to) {
  if (from >= kDtypes || to >= kDtypes) return nullptr;
  if (from == to) return same_bits(kElementBytes[from]);
  if (!is_converted(from) || !is_converted(to)) return nullptr;
  constexpr Convert (*table[])(uint16_t) = {conversion_from<kFloat64>, conversion_from<kFloat32>,
                                            conversion_from<kFloat16>, conversion_from<kBfloat16>};
  return table[from](to);
}

}  // namespace vcc::weights
