#include "recorder/graph.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "abi/error.h"
#include "recorder/cupti.h"
#include "recorder/host_words.h"
#include "recorder/json.h"

namespace vcc::recorder {

namespace {

using Span = std::pair<size_t, size_t>;  // offset and size of one parameter

// Below are small numbers, above is no canonical address: neither can be memory.
constexpr uint64_t kLowestAddress = 1ull << 24, kHighestAddress = 1ull << 57;

std::string from_array(void* const* parameters, const std::vector<Span>& spans) {
  size_t end = 0;
  for (const auto& [offset, size] : spans) end = std::max(end, offset + size);
  std::string block(end, '\0');
  for (size_t i = 0; i < spans.size(); ++i) {
    std::memcpy(block.data() + spans[i].first, parameters[i], spans[i].second);
  }
  return block;
}

std::string from_buffer(void* const* extra) {
  const void* bytes = nullptr;
  size_t size = 0;
  for (void* const* at = extra; *at != kLaunchParamEnd; at += 2) {
    if (at[0] == kLaunchParamBufferPointer) bytes = at[1];
    if (at[0] == kLaunchParamBufferSize) size = *static_cast<size_t*>(at[1]);
  }
  return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
}

std::string block_of(const CUDA_KERNEL_NODE_PARAMS& node, const std::vector<Span>& spans) {
  if (node.kernelParams != nullptr) return from_array(node.kernelParams, spans);
  if (node.extra != nullptr) return from_buffer(node.extra);
  return {};
}

bool is_live(uint64_t word) {
  unsigned type = 0;
  return word >= kLowestAddress && word < kHighestAddress &&
         driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, word) ==
             CUDA_SUCCESS;
}

uint64_t word_at(const std::string& block, size_t at) {
  uint64_t word = 0;
  std::memcpy(&word, block.data() + at, sizeof word);
  return word;
}

// Offsets of the aligned words that `test` holds for.
template <class Test>
void write_offsets(Json& json, const char* name, const std::string& block, const Test& test) {
  json.name(name).open('[');
  for (size_t at = 0; at + 8 <= block.size(); at += 8) {
    if (test(word_at(block, at))) json.number(at);
  }
  json.close(']');
}

void write_words(Json& json, const std::string& block, const std::vector<Span>& spans,
                 const HostWords& host) {
  json.name("parameters").hex(block.data(), block.size());
  json.name("spans").open('[');
  for (const auto& [offset, size] : spans) json.open('[').number(offset).number(size).close(']');
  json.close(']');
  write_offsets(json, "live", block, is_live);
  write_offsets(json, "host", block, [&](uint64_t word) { return host.contains(word); });
}

// An attribute of a node: false where this driver does not know it. Any other failure is one, as a
// node without its attributes may compute something else.
bool read_attribute(CUgraphNode node, CUlaunchAttributeID id, CUlaunchAttributeValue* value) {
  const CUresult said = driver().cuGraphKernelNodeGetAttribute(node, id, value);
  if (said == CUDA_ERROR_INVALID_VALUE || said == CUDA_ERROR_NOT_SUPPORTED) return false;
  if (said != CUDA_SUCCESS) {
    fail_call(said, "cuGraphKernelNodeGetAttribute", __FILE__, __LINE__);
  }
  return true;
}

void write_attributes(Json& json, CUgraphNode node, CUfunction function) {
  json.name("attributes").open('[');
  for (const CUlaunchAttributeID id : kNodeAttributes) {
    CUlaunchAttributeValue value = {};
    if (!read_attribute(node, id, &value)) continue;
    const bool set = std::any_of(std::begin(value.pad), std::end(value.pad),
                                 [](char byte) { return byte != 0; });
    if (set) json.open('[').number(id).hex(value.pad, sizeof value.pad).close(']');
  }
  json.close(']');
  const std::pair<const char*, CUfunction_attribute> settings[] = {
      {"max_dynamic", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES},
      {"carveout", CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT},
      {"non_portable", CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED}};
  for (const auto& [name, id] : settings) {
    int value = 0;
    VCC_CU(cuFuncGetAttribute(&value, id, function));
    json.name(name).number_signed(value);
  }
}

void write_three(Json& json, const char* name, unsigned x, unsigned y, unsigned z) {
  json.name(name).open('[').number(x).number(y).number(z).close(']');
}

void write_kernel(Json& json, CUgraphNode node, const HostWords& host) {
  CUDA_KERNEL_NODE_PARAMS found = {};
  VCC_CU(cuGraphKernelNodeGetParams(node, &found));
  CUfunction function = found.func;
  CUmodule module = nullptr;
  if (function == nullptr) VCC_CU(cuKernelGetFunction(&function, found.kern));
  const char* name = nullptr;
  VCC_CU(cuFuncGetName(&name, function));
  VCC_CU(cuFuncGetModule(&module, function));
  const std::vector<Span> spans = parameter_spans(function);
  json.name("kind").text("kernel").name("function").text(name);
  json.name("cubin").number(Cubins::of_process().find(module, name));
  write_three(json, "grid", found.gridDimX, found.gridDimY, found.gridDimZ);
  write_three(json, "block", found.blockDimX, found.blockDimY, found.blockDimZ);
  json.name("shared").number(found.sharedMemBytes);
  write_words(json, block_of(found, spans), spans, host);
  write_attributes(json, node, function);
}

void write_memset(Json& json, CUgraphNode node) {
  CUDA_MEMSET_NODE_PARAMS found = {};
  VCC_CU(cuGraphMemsetNodeGetParams(node, &found));
  json.name("kind").text("memset").name("target").number(found.dst);
  json.name("pitch").number(found.pitch).name("value").number(found.value);
  json.name("element").number(found.elementSize).name("width").number(found.width);
  json.name("height").number(found.height);
}

bool one_run(const CUDA_MEMCPY3D& copy) {
  const size_t starts = copy.srcXInBytes + copy.srcY + copy.srcZ + copy.srcLOD + copy.dstXInBytes +
                        copy.dstY + copy.dstZ + copy.dstLOD;
  return starts == 0 && copy.srcArray == nullptr && copy.dstArray == nullptr && copy.Height <= 1 &&
         copy.Depth <= 1;
}

void write_memcpy(Json& json, CUgraphNode node) {
  CUDA_MEMCPY3D found = {};
  VCC_CU(cuGraphMemcpyNodeGetParams(node, &found));
  json.name("kind").text("memcpy").name("source").number(found.srcDevice);
  json.name("target").number(found.dstDevice).name("bytes").number(found.WidthInBytes);
  json.name("source_memory").number(found.srcMemoryType);
  json.name("target_memory").number(found.dstMemoryType).name("plain").number(one_run(found));
}

void write_node(Json& json, CUgraphNode node, const HostWords& host) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  VCC_CU(cuGraphNodeGetType(node, &type));
  json.open('{');
  if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
    write_kernel(json, node, host);
  } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
    write_memset(json, node);
  } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    write_memcpy(json, node);
  } else if (type == CU_GRAPH_NODE_TYPE_EMPTY) {
    json.name("kind").text("empty");
  } else {
    json.name("kind").text("other").name("type").number(type);
  }
  json.close('}');
}

void write_edges(Json& json, CUgraph graph, const std::map<CUgraphNode, size_t>& index) {
  size_t count = 0;
  VCC_CU(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  std::vector<CUgraphNode> from(count), to(count);
  std::vector<CUgraphEdgeData> data(count);
  if (count > 0) VCC_CU(cuGraphGetEdges(graph, from.data(), to.data(), data.data(), &count));
  json.name("edges").open('[');
  for (size_t i = 0; i < count; ++i) {
    json.open('[').number(index.at(from[i])).number(index.at(to[i]));
    json.number(data[i].type).number(data[i].from_port).number(data[i].to_port).close(']');
  }
  json.close(']');
}

}  // namespace

std::vector<Span> parameter_spans(CUfunction function) {
  std::vector<Span> spans;
  size_t offset = 0, size = 0;
  for (;;) {
    const CUresult said = driver().cuFuncGetParamInfo(function, spans.size(), &offset, &size);
    if (said == CUDA_ERROR_INVALID_VALUE) return spans;  // there is no parameter of this number
    if (said != CUDA_SUCCESS) fail_call(said, "cuFuncGetParamInfo", __FILE__, __LINE__);
    spans.emplace_back(offset, size);
  }
}

std::string describe_graph(CUgraph graph) {
  size_t count = 0;
  VCC_CU(cuGraphGetNodes(graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  if (count > 0) VCC_CU(cuGraphGetNodes(graph, nodes.data(), &count));
  const HostWords host;
  Json json;
  std::map<CUgraphNode, size_t> index;
  json.open('{').name("nodes").open('[');
  for (size_t i = 0; i < count; ++i) {
    index[nodes[i]] = i;
    write_node(json, nodes[i], host);
  }
  json.close(']');
  write_edges(json, graph, index);
  return json.close('}').take();
}

}  // namespace vcc::recorder
