// Tasks on stacks of their own. What a structure that is filled in part holds besides is what the
// stack held before, and addresses of the stack: on these stacks both differ in every byte from one
// turn to the next, and are the same in every process.
#pragma once

#include <cstdint>
#include <functional>

namespace vcc::recorder {

inline constexpr uint32_t kTurns = 3;

// The byte that dead memory is filled with in a turn.
uint8_t pattern_of(uint32_t turn);

// Run `task` in a thread with the stack of a turn and this thread's CUDA context; what it throws is
// thrown here.
void on_stack_of(uint32_t turn, const std::function<void()>& task);

}  // namespace vcc::recorder
