#include "recorder/replay.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "abi/error.h"
#include "recorder/graph.h"

namespace vcc::recorder {

namespace {

constexpr size_t kBlockAlignment = 64;  // of tensor maps in a parameter block

using Block = std::unique_ptr<uint8_t, decltype(&std::free)>;

Block aligned_copy(const std::vector<uint8_t>& bytes) {
  const size_t size = (bytes.size() / kBlockAlignment + 1) * kBlockAlignment;
  Block block(static_cast<uint8_t*>(std::aligned_alloc(kBlockAlignment, size)), &std::free);
  if (block == nullptr) throw std::bad_alloc();
  std::memcpy(block.get(), bytes.data(), bytes.size());
  return block;
}

std::vector<void*> pointers_into(uint8_t* block, size_t bytes, CUfunction function) {
  std::vector<void*> pointers;
  for (const auto& [offset, size] : parameter_spans(function)) {
    if (offset + size > bytes) {
      throw Error(Code::kIntegrity, "a kernel's parameters do not fit its node",
                  "parameter " + std::to_string(pointers.size()) + " ends at byte " +
                      std::to_string(offset + size) + " of " + std::to_string(bytes));
    }
    pointers.push_back(block + offset);
  }
  return pointers;
}

}  // namespace

CUfunction load_function(const void* cubin, const char* name, const FunctionSettings& settings) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  VCC_CU(cuModuleLoadData(&module, cubin));
  VCC_CU(cuModuleGetFunction(&function, module, name));
  const auto set = [&](CUfunction_attribute which, int value) {
    VCC_CU(cuFuncSetAttribute(function, which, value));
  };
  if (settings.max_dynamic > 0) {
    set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, settings.max_dynamic);
  }
  if (settings.carveout >= 0) {
    set(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, settings.carveout);
  }
  if (settings.non_portable != 0) set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
  return function;
}

Replay::Replay() {
  VCC_CU(cuCtxGetCurrent(&context_));
  VCC_CU(cuGraphCreate(&graph_, 0));
}

Replay::~Replay() {
  if (executable_ != nullptr) driver().cuGraphExecDestroy(executable_);
  driver().cuGraphDestroy(graph_);
}

CUgraphNode& Replay::added() { return nodes_.emplace_back(nullptr); }

void Replay::kernel(CUfunction function, const uint32_t (&dimensions)[7],
                    const std::vector<uint8_t>& parameters, const CUlaunchAttribute* attributes,
                    size_t count) {
  const Block block = aligned_copy(parameters);
  std::vector<void*> pointers = pointers_into(block.get(), parameters.size(), function);
  CUDA_KERNEL_NODE_PARAMS node = {};
  node.func = function;
  node.gridDimX = dimensions[0];
  node.gridDimY = dimensions[1];
  node.gridDimZ = dimensions[2];
  node.blockDimX = dimensions[3];
  node.blockDimY = dimensions[4];
  node.blockDimZ = dimensions[5];
  node.sharedMemBytes = dimensions[6];
  node.kernelParams = pointers.data();
  VCC_CU(cuGraphAddKernelNode(&added(), graph_, nullptr, 0, &node));
  for (size_t i = 0; i < count; ++i) {
    VCC_CU(cuGraphKernelNodeSetAttribute(nodes_.back(), attributes[i].id, &attributes[i].value));
  }
}

void Replay::memset(const CUDA_MEMSET_NODE_PARAMS& node) {
  VCC_CU(cuGraphAddMemsetNode(&added(), graph_, nullptr, 0, &node, context_));
}

void Replay::memcpy(uint64_t target, uint64_t source, uint64_t bytes) {
  CUDA_MEMCPY3D node = {};
  node.srcMemoryType = node.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  node.srcDevice = source;
  node.dstDevice = target;
  node.WidthInBytes = bytes;
  node.Height = node.Depth = 1;
  VCC_CU(cuGraphAddMemcpyNode(&added(), graph_, nullptr, 0, &node, context_));
}

void Replay::empty() { VCC_CU(cuGraphAddEmptyNode(&added(), graph_, nullptr, 0)); }

// One call an edge: some drivers are reported to drop the data of edges that are added together.
void Replay::edges(const Edge* edges, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    VCC_EXPECT(edges[i].from < nodes_.size() && edges[i].to < nodes_.size(), "an edge of no node");
    CUgraphEdgeData data = {};
    data.from_port = static_cast<unsigned char>(edges[i].from_port);
    data.to_port = static_cast<unsigned char>(edges[i].to_port);
    data.type = static_cast<unsigned char>(edges[i].type);
    VCC_CU(cuGraphAddDependencies(graph_, &nodes_[edges[i].from], &nodes_[edges[i].to], &data, 1));
  }
}

void Replay::instantiate() {
  VCC_EXPECT(executable_ == nullptr, "a replay is instantiated once");
  VCC_CU(cuGraphInstantiate(&executable_, graph_, 0));
}

double Replay::launch(uint32_t times) {
  VCC_EXPECT(executable_ != nullptr && times > 0, "a replay is instantiated before it is launched");
  CUevent begin = nullptr, end = nullptr;
  VCC_CU(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  VCC_CU(cuEventCreate(&end, CU_EVENT_DEFAULT));
  VCC_CU(cuEventRecord(begin, stream()));
  for (uint32_t i = 0; i < times; ++i) VCC_CU(cuGraphLaunch(executable_, stream()));
  VCC_CU(cuEventRecord(end, stream()));
  VCC_CU(cuStreamSynchronize(stream()));
  float milliseconds = 0;
  VCC_CU(cuEventElapsedTime(&milliseconds, begin, end));
  VCC_CU(cuEventDestroy(begin));
  VCC_CU(cuEventDestroy(end));
  return static_cast<double>(milliseconds) * 1e3 / times;
}

}  // namespace vcc::recorder
