// A block's threads as fibers of one thread of the host, and what a test calls.
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <random>

#include "shim.h"

namespace host {
namespace {

constexpr size_t kStack = 64 << 10;
constexpr int kWarp = 32;

struct Known {
  int threads;
  std::vector<size_t> sizes;
  std::function<void(void**)> run;
};

std::map<std::string, Known>& entries() {
  static std::map<std::string, Known> all;
  return all;
}

struct Range {
  uintptr_t begin, end;
  bool writable;
};

std::vector<Range> allowed;
std::string error;

void fail(const std::string& text) {
  if (error.empty()) error = text;
}

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  Thread thread;
  bool done = false;
  int shuffles = 0;
};

struct Meeting {  // of those who wait for each other
  int arrived = 0;
  uint64_t passed = 0;
};

struct Block {
  std::vector<Fiber> fibers;
  Meeting all;
  std::vector<Meeting> warps;
  std::vector<std::array<uint32_t, 2 * kWarp>> slots;
  const std::function<void(void**)>* run = nullptr;
  void** given = nullptr;
  int alive = 0;
  uint64_t progress = 0;
};

ucontext_t scheduler;
Block* block = nullptr;
Fiber* current = nullptr;

void yield() { swapcontext(&current->context, &scheduler); }

void meet(Meeting& meeting, const std::function<bool()>& complete) {
  const uint64_t before = meeting.passed;
  ++meeting.arrived;
  while (meeting.passed == before) {
    if (complete()) {
      meeting.arrived = 0, ++meeting.passed, ++block->progress;
    } else {
      yield();
    }
  }
}

void body() {
  (*block->run)(block->given);
  current->done = true;
  --block->alive, ++block->progress;
  yield();
}

// Every fiber in turn, until all are done or a whole round changed nothing.
void run_block(unsigned index, unsigned threads, std::mt19937* shuffled) {
  std::vector<size_t> order(threads);
  for (size_t i = 0; i < threads; ++i) order[i] = i;
  for (unsigned i = 0; i < threads; ++i) {
    Fiber& fiber = block->fibers[i];
    fiber.thread = {{i}, {index}, {threads}};
    fiber.done = false, fiber.shuffles = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = &scheduler;
    makecontext(&fiber.context, body, 0);
  }
  block->alive = static_cast<int>(threads);
  while (block->alive > 0) {
    const uint64_t before = block->progress;
    if (shuffled != nullptr) std::shuffle(order.begin(), order.end(), *shuffled);
    for (const size_t i : order) {
      current = &block->fibers[i];
      if (!current->done) swapcontext(&scheduler, &current->context);
    }
    if (block->progress == before) return fail("threads wait for others that do not come");
  }
}

}  // namespace

const Thread& thread() { return current->thread; }

void sync_block() {
  meet(block->all, [] { return block->all.arrived == block->alive; });
}

uint32_t exchanged(uint32_t value, int apart) {
  const int id = static_cast<int>(current->thread.index.x), lane = id % kWarp;
  Meeting& warp = block->warps[id / kWarp];
  uint32_t* slots = &block->slots[id / kWarp][current->shuffles++ % 2 * kWarp];
  slots[lane] = value;
  meet(warp, [&] { return warp.arrived == kWarp; });
  return slots[lane ^ apart];
}

bool reached(const void* address, size_t bytes, bool write) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  if (begin % bytes != 0) {
    fail("an access of " + std::to_string(bytes) + " bytes is not aligned");
    return false;
  }
  for (const Range& range : allowed) {
    if (begin >= range.begin && begin + bytes <= range.end && (range.writable || !write)) {
      return true;
    }
  }
  fail(std::string(write ? "a write" : "a read") + " outside its memory");
  return false;
}

uint16_t float_to_bf16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if (value != value) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t float_to_half(float value) {
  const _Float16 half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}

float half_to_float(uint16_t bits) {
  _Float16 half;
  std::memcpy(&half, &bits, 2);
  return static_cast<float>(half);
}

void Entry::add(const char* name, int threads, std::vector<size_t> sizes,
                std::function<void(void**)> run) {
  entries()[name] = {threads, std::move(sizes), std::move(run)};
}

}  // namespace host

extern "C" {

void host_allow(void* address, size_t bytes, int writable) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  host::allowed.push_back({begin, begin + bytes, writable != 0});
}

// Sizes of a kernel's parameters, up to `most`; their number, or -1 where there is no such kernel.
int host_parameters(const char* name, size_t* sizes, int most) {
  const auto found = host::entries().find(name);
  if (found == host::entries().end()) return -1;
  const auto& own = found->second.sizes;
  for (int i = 0; i < most && i < static_cast<int>(own.size()); ++i) sizes[i] = own[i];
  return static_cast<int>(own.size());
}

// Run a kernel. `seed` shuffles the order of the threads; 0 leaves it. Returns what went wrong, or
// an empty text; the memory that was allowed is forgotten.
const char* host_launch(const char* name, unsigned blocks, unsigned threads, void** given,
                        unsigned seed) {
  static std::string said;
  host::error.clear();
  const auto found = host::entries().find(name);
  if (found == host::entries().end()) {
    host::fail("no such kernel");
  } else if (threads > static_cast<unsigned>(found->second.threads) || threads % host::kWarp) {
    host::fail("a block of " + std::to_string(threads) + " threads");
  } else {
    host::Block made;
    made.fibers.resize(threads);
    for (auto& fiber : made.fibers)
      fiber.stack = std::make_unique_for_overwrite<char[]>(host::kStack);
    made.run = &found->second.run, made.given = given;
    std::mt19937 generator(seed);
    for (unsigned i = 0; i < blocks && host::error.empty(); ++i) {
      made.warps.assign(threads / host::kWarp, {});
      made.slots.assign(threads / host::kWarp, {});
      made.all = {};
      host::block = &made;
      host::run_block(i, threads, seed == 0 ? nullptr : &generator);
    }
  }
  host::allowed.clear();
  said = host::error;
  return said.c_str();
}
}
