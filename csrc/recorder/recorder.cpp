#include "recorder/recorder.h"

#include <cstring>

#include "abi/error.h"
#include "driver/device.h"
#include "recorder/cupti.h"
#include "recorder/graph.h"
#include "recorder/library.h"
#include "recorder/lt.h"
#include "recorder/replay.h"
#include "recorder/spread.h"

namespace {

using namespace vcc;
using namespace vcc::recorder;

// Never destroyed: the driver may be gone at exit before they would be.
Lt* opened_lt = nullptr;
Device* opened_device = nullptr;  // of a process without torch

Lt& lt() {
  VCC_EXPECT(opened_lt != nullptr, "cuBLASLt is not open");
  return *opened_lt;
}

Operands operands_of(const void* bytes) {
  Operands operands;
  std::memcpy(&operands, bytes, sizeof operands);
  return operands;
}

Product product_of(const void* numbers) {
  Product product;
  std::memcpy(&product, numbers, sizeof product);
  return product;
}
static_assert(sizeof(Product) == 32 && sizeof(Operands) == 56);

Replay& replay_of(uint64_t handle) { return *reinterpret_cast<Replay*>(handle); }

}  // namespace

int32_t vcc_recorder_open(const char* libcuda, int32_t ordinal) {
  return guarded([&] {
    load_driver(libcuda);
    if (ordinal < 0) return;
    if (opened_device == nullptr) opened_device = new Device(libcuda, ordinal);
    opened_device->use();
  });
}

int32_t vcc_recorder_watch(const char* candidates, const char** path) {
  return guarded([&] { *path = keep_text(Cubins::of_process().subscribe(lines_of(candidates))); });
}

int32_t vcc_recorder_spread_heap(uint64_t bytes) {
  return guarded([&] { spread_heap(bytes); });
}

int32_t vcc_recorder_spread_mappings(uint64_t bytes) {
  return guarded([&] { spread_mappings(bytes); });
}

int32_t vcc_recorder_cubin_size(uint64_t index, uint64_t* size) {
  return guarded([&] { *size = Cubins::of_process().copy(index).size(); });
}

int32_t vcc_recorder_cubin(uint64_t index, void* bytes, uint64_t size) {
  return guarded([&] {
    const std::string cubin = Cubins::of_process().copy(index);
    VCC_EXPECT(size == cubin.size(), "a cubin is read as a whole");
    std::memcpy(bytes, cubin.data(), cubin.size());
  });
}

int32_t vcc_recorder_graph(uint64_t graph, const char** json) {
  return guarded([&] { *json = keep_text(describe_graph(reinterpret_cast<CUgraph>(graph))); });
}

int32_t vcc_lt_open(const char* candidates, uint64_t* version, const char** path) {
  return guarded([&] {
    if (opened_lt == nullptr) opened_lt = new Lt(lines_of(candidates));
    *version = lt().version();
    *path = keep_text(lt().path());
  });
}

int32_t vcc_lt_workspace(const void* product, uint64_t* bytes) {
  return guarded([&] { *bytes = lt().workspace_bytes(product_of(product)); });
}

int32_t vcc_lt_record(const void* product, const void* operands, uint32_t turn, const char** json) {
  return guarded(
      [&] { *json = keep_text(lt().record(product_of(product), operands_of(operands), turn)); });
}

int32_t vcc_lt_run(const void* product, const void* operands) {
  return guarded([&] {
    lt().enqueue(product_of(product), operands_of(operands));
    VCC_CU(cuStreamSynchronize(stream()));
  });
}

int32_t vcc_replay_allocate(uint64_t bytes, uint64_t* address) {
  return guarded([&] {
    CUdeviceptr made = 0;
    VCC_CU(cuMemAlloc(&made, bytes));
    *address = made;
  });
}

int32_t vcc_replay_free(uint64_t address) {
  return guarded([&] { VCC_CU(cuMemFree(address)); });
}

int32_t vcc_replay_fill(uint64_t address, uint32_t byte, uint64_t bytes) {
  return guarded([&] {
    VCC_CU(cuMemsetD8Async(address, static_cast<unsigned char>(byte), bytes, stream()));
    VCC_CU(cuStreamSynchronize(stream()));
  });
}

int32_t vcc_replay_write(uint64_t address, const void* bytes, uint64_t size) {
  return guarded([&] {
    VCC_CU(cuMemcpyHtoDAsync(address, bytes, size, stream()));
    VCC_CU(cuStreamSynchronize(stream()));
  });
}

int32_t vcc_replay_read(uint64_t address, void* bytes, uint64_t size) {
  return guarded([&] {
    VCC_CU(cuMemcpyDtoHAsync(bytes, address, size, stream()));
    VCC_CU(cuStreamSynchronize(stream()));
  });
}

int32_t vcc_replay_function(const void* cubin, const char* name, int32_t max_dynamic,
                            int32_t carveout, int32_t non_portable, uint64_t* function) {
  return guarded([&] {
    const FunctionSettings settings = {max_dynamic, carveout, non_portable};
    *function = reinterpret_cast<uint64_t>(load_function(cubin, name, settings));
  });
}

int32_t vcc_replay_create(uint64_t* replay) {
  return guarded([&] { *replay = reinterpret_cast<uint64_t>(new Replay); });
}

int32_t vcc_replay_kernel(uint64_t replay, uint64_t function, const void* dimensions,
                          const void* parameters, uint64_t size, const void* attributes,
                          uint64_t count) {
  return guarded([&] {
    uint32_t sizes[7];
    std::memcpy(sizes, dimensions, sizeof sizes);
    const auto* bytes = static_cast<const uint8_t*>(parameters);
    replay_of(replay).kernel(reinterpret_cast<CUfunction>(function), sizes,
                             std::vector<uint8_t>(bytes, bytes + size),
                             static_cast<const CUlaunchAttribute*>(attributes), count);
  });
}

int32_t vcc_replay_memset(uint64_t replay, uint64_t target, uint64_t pitch, uint32_t value,
                          uint32_t element, uint64_t width, uint64_t height) {
  return guarded([&] {
    replay_of(replay).memset(CUDA_MEMSET_NODE_PARAMS{target, pitch, value, element, width, height});
  });
}

int32_t vcc_replay_memcpy(uint64_t replay, uint64_t target, uint64_t source, uint64_t bytes) {
  return guarded([&] { replay_of(replay).memcpy(target, source, bytes); });
}

int32_t vcc_replay_empty(uint64_t replay) {
  return guarded([&] { replay_of(replay).empty(); });
}

int32_t vcc_replay_edges(uint64_t replay, const void* edges, uint64_t count) {
  return guarded([&] { replay_of(replay).edges(static_cast<const Edge*>(edges), count); });
}

int32_t vcc_replay_instantiate(uint64_t replay) {
  return guarded([&] { replay_of(replay).instantiate(); });
}

int32_t vcc_replay_launch(uint64_t replay, uint32_t times, double* microseconds) {
  return guarded([&] { *microseconds = replay_of(replay).launch(times); });
}

int32_t vcc_replay_destroy(uint64_t replay) {
  return guarded([&] { delete &replay_of(replay); });
}
