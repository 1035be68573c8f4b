// Random use of the arena on the libcuda double, with driver calls that fail at random; built with
// the sanitizers by test_arena_storm.py. Usage: arena_storm LIBCUDA SEED OPERATIONS. Exits 0 when
// every block that should have its contents has them, and nothing is mapped at the end.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "driver/abi.h"
#include "memory/abi.h"
#include "memory/arena.h"

namespace {

using vcc::Arena;
using vcc::CUdeviceptr;

struct Block {
  size_t size;
  unsigned char byte;
  std::string tag;
};

const char* const kTags[] = {"weights", "kv_cache", "io", "mine"};

void expect(bool condition, const char* text) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", text);
  std::exit(1);
}

class Storm {
 public:
  Storm(const char* path, unsigned seed) : random_(seed) {
    fail_ = reinterpret_cast<void (*)(const char*, long, int)>(
        dlsym(dlopen(path, RTLD_NOW), "fake_fail"));
    device_ = std::make_shared<vcc::Device>(path, 0);
    arena_ = std::make_unique<Arena>(device_);
    arena_->set_ring(3, size_t{16} << 10);  // many pieces for several threads
    range_ = arena_->reserve_range(size_t{256} << 20, size_t{4} << 20, "kv_cache");
  }

  void step() {
    const bool failing = draw(4) == 0;
    if (failing) fail_("*", 1 + static_cast<long>(draw(20)), draw(2) == 0 ? 2 : 1);
    try {
      act();
    } catch (const vcc::Error&) {
      ++refused_;
    }
    fail_("*", 0, 0);
  }

  void finish() {
    arena_->wake({});
    for (const auto& [address, block] : blocks_) check(address, block);
    for (const auto& [address, _] : blocks_) arena_->free(address);
    arena_->free_range(range_);
    arena_->trim();
    const auto counters = arena_->counters();
    expect(counters.mapped == 0 && counters.live == 0 && counters.host == 0, "memory is left");
    std::printf("%d refused, %llu sleeps, %llu wakes\n", refused_,
                static_cast<unsigned long long>(counters.sleeps),
                static_cast<unsigned long long>(counters.wakes));
  }

 private:
  uint64_t draw(uint64_t below) { return random_() % below; }

  vcc::Tags some_tags() {
    vcc::Tags tags;
    for (const char* tag : kTags) {
      if (draw(2) == 0) tags.push_back(tag);
    }
    return tags;
  }

  void act() {
    switch (draw(12)) {
      case 0:
        return sleep(1);
      case 1:
        return sleep(2);
      case 2:
      case 3:
        arena_->wake(some_tags());
        return forget_unfilled();  // and what is written from now on must stay
      case 4:
        arena_->trim();
        return;
      case 5:
        return arena_->map_range(range_, draw(8) << 24, size_t{1} << 24);
      case 6:
        return arena_->unmap_range(range_, draw(8) << 24, size_t{1} << 24);
      case 7:
      case 8:
        return release();
      default:
        return allocate();
    }
  }

  // Contents that a sleep drops, or may have dropped before it failed, are expected no more.
  void sleep(int level) {
    const vcc::Tags tags = some_tags();
    try {
      arena_->sleep(level, tags);
    } catch (...) {
      forget_unfilled();
      throw;
    }
    forget_unfilled();
  }

  void forget_unfilled() {
    const std::string stats = arena_->stats();
    for (const char* tag : kTags) {
      const size_t at = stats.find('"' + std::string(tag) + "\": {");
      if (at == std::string::npos) continue;
      const size_t filled = stats.find("\"filled\": ", at);
      if (stats.compare(filled + 10, 4, "true") == 0) continue;
      for (auto& [_, block] : blocks_) {
        if (block.tag == tag) block.byte = 0;
      }
      if (!arena_->asleep(tag)) arena_->mark_filled(tag);
    }
  }

  void allocate() {
    const std::string tag = kTags[draw(4)];
    const size_t size = size_t{1} << (6 + draw(18));
    const CUdeviceptr address = arena_->allocate(size, tag);
    const auto byte = static_cast<unsigned char>(1 + draw(255));
    fail_("*", 0, 0);
    VCC_CU(cuMemsetD8Async(address, byte, size, nullptr));
    expect(blocks_.emplace(address, Block{size, byte, tag}).second, "an address was given twice");
  }

  void release() {
    if (blocks_.empty()) return;
    auto block = blocks_.begin();
    std::advance(block, static_cast<long>(draw(blocks_.size())));
    if (!arena_->asleep(block->second.tag)) {
      fail_("*", 0, 0);
      check(block->first, block->second);
    }
    arena_->free(block->first);
    blocks_.erase(block);
  }

  void check(CUdeviceptr address, const Block& block) {
    if (block.byte == 0) return;
    std::vector<unsigned char> found(block.size);
    VCC_CU(cuMemcpyDtoH(found.data(), address, block.size));
    for (const unsigned char byte : found) expect(byte == block.byte, "contents were lost");
  }

  std::mt19937_64 random_;
  void (*fail_)(const char*, long, int);
  std::shared_ptr<vcc::Device> device_;
  std::unique_ptr<Arena> arena_;
  CUdeviceptr range_ = 0;
  std::map<CUdeviceptr, Block> blocks_;
  int refused_ = 0;
};

// Several threads on one arena through the C ABI.
void threads(const char* path) {
  uint64_t device = 0, arena = 0;
  expect(vcc_device_open(path, 0, &device) == 0, vcc_error_text());
  expect(vcc_arena_open(device, 1, &arena) == 0, vcc_error_text());
  expect(vcc_arena_bind_torch(arena, 1) == 0, vcc_error_text());
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([&, t] {
      const char* before = nullptr;
      vcc_arena_thread_tag(kTags[t], &before);
      for (int i = 0; i < 200; ++i) {
        void* block = vcc_torch_malloc(1000 + 4000 * i, 0, nullptr);
        expect(block != nullptr, "no block");
        const char* json = nullptr;
        expect(vcc_arena_stats(arena, &json) == 0, vcc_error_text());
        vcc_torch_free(block, 0, 0, nullptr);
      }
    });
  }
  for (auto& thread : all) thread.join();
  vcc_arena_bind_torch(arena, 0);
  expect(vcc_arena_close(arena) == 0 && vcc_device_close(device) == 0, vcc_error_text());
  expect(vcc_arena_close(arena) == 2, "a closed handle was taken");
}

}  // namespace

int main(int, char** arguments) {
  {
    Storm storm(arguments[1], static_cast<unsigned>(std::atoi(arguments[2])));
    for (int i = 0; i < std::atoi(arguments[3]); ++i) storm.step();
    storm.finish();
  }
  threads(arguments[1]);
  return 0;
}
