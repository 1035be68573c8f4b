#include "recorder/stacks.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <exception>

#include "abi/error.h"
#include "driver/driver.h"

namespace vcc::recorder {

namespace {

struct Turn {
  uint64_t wish;  // where the stack shall lie: no byte of an address in it is that of another turn
  uint8_t pattern;
};

constexpr Turn kTurn[kTurns] = {
    {0x1C5A'3B47'0000, 0xA5}, {0x2DA5'C4B8'0000, 0x5A}, {0x3E96'5D2F'0000, 0x3C}};

constexpr size_t kBytes = 8u << 20;    // as a main thread has: the driver loads kernels on it
constexpr size_t kPainted = 1u << 20;  // from the top, which is where a task begins
constexpr size_t kShift = 0x5010;      // by turn, so that the low bytes differ too

uint8_t* stack_of(uint32_t turn) {
  static uint8_t* made[kTurns] = {};
  if (made[turn] != nullptr) return made[turn];
  void* const at = mmap(reinterpret_cast<void*>(kTurn[turn].wish), kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (at == MAP_FAILED) {
    throw Error(Code::kDevice, "the recorder has no memory for a stack", std::strerror(errno));
  }
  made[turn] = static_cast<uint8_t*>(at);
  return made[turn];
}

struct Call {
  const std::function<void()>& task;
  CUcontext context;
  std::exception_ptr failed;
};

void* run(void* argument) {
  auto* const call = static_cast<Call*>(argument);
  try {
    if (call->context != nullptr) VCC_CU(cuCtxSetCurrent(call->context));
    call->task();
  } catch (...) {
    call->failed = std::current_exception();
  }
  return nullptr;
}

int start(pthread_t* thread, uint8_t* stack, size_t bytes, Call* call) {
  pthread_attr_t attributes;
  int code = pthread_attr_init(&attributes);
  if (code != 0) return code;
  code = pthread_attr_setstack(&attributes, stack, bytes);
  if (code == 0) code = pthread_create(thread, &attributes, &run, call);
  pthread_attr_destroy(&attributes);
  return code;
}

}  // namespace

uint8_t pattern_of(uint32_t turn) {
  VCC_EXPECT(turn < kTurns, "there are three turns");
  return kTurn[turn].pattern;
}

void on_stack_of(uint32_t turn, const std::function<void()>& task) {
  const uint8_t pattern = pattern_of(turn);
  uint8_t* const stack = stack_of(turn);
  const size_t bytes = kBytes - turn * kShift;
  std::memset(stack + bytes - kPainted, pattern, kPainted);
  Call call = {task, nullptr, nullptr};
  VCC_CU(cuCtxGetCurrent(&call.context));
  pthread_t thread;
  if (const int code = start(&thread, stack, bytes, &call); code != 0) {
    throw Error(Code::kDevice, "the recorder cannot start a thread", std::strerror(code));
  }
  pthread_join(thread, nullptr);
  if (call.failed != nullptr) std::rethrow_exception(call.failed);
}

}  // namespace vcc::recorder
