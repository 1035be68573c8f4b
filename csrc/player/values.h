// Elements between a program's arrays and pinned memory, converted on their way by several threads.
#pragma once

#include <cstdint>

namespace vcc {

// An array of a program: its elements lie side by side.
struct Values {
  char* data;
  uint16_t dtype;  // code of node tables
};

// Copies `count` elements; throws Error(kUsage) where one dtype is not made of the other.
void move_values(const Values& from, const Values& to, uint64_t count);

// Bytes of an element; throws Error(kUsage) for a code that is none.
uint64_t value_bytes(uint16_t dtype);

}  // namespace vcc
