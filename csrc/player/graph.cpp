#include "player/graph.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "abi/error.h"
#include "driver/driver.h"

namespace vcc {
namespace {

constexpr uint8_t kProgrammatic = 1;  // CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC

// A CUgraph that is destroyed when it goes out of scope.
struct Draft {
  Draft() { VCC_CU(cuGraphCreate(&graph, 0)); }
  ~Draft() { driver().cuGraphDestroy(graph); }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  CUgraph graph = nullptr;
};

CUDA_MEMCPY3D copy_of(const Launch& launch) {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = launch.source;
  copy.dstDevice = launch.target;
  copy.srcPitch = copy.dstPitch = copy.WidthInBytes = launch.width;
  copy.srcHeight = copy.dstHeight = copy.Height = copy.Depth = 1;
  return copy;
}

CUgraphNode add_kernel(CUgraph graph, const Expansion& expansion, const Launch& launch) {
  CUDA_KERNEL_NODE_PARAMS params = {};
  params.func = launch.shape->function->handle;
  params.gridDimX = launch.grid[0];
  params.gridDimY = launch.grid[1];
  params.gridDimZ = launch.grid[2];
  params.blockDimX = launch.shape->block[0];
  params.blockDimY = launch.shape->block[1];
  params.blockDimZ = launch.shape->block[2];
  params.sharedMemBytes = launch.shape->shared;
  params.kernelParams = const_cast<void**>(expansion.pointers.data() + launch.pointers);
  CUgraphNode node = nullptr;
  VCC_CU(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
  for (const CUlaunchAttribute& attribute : launch.shape->attributes) {
    VCC_CU(cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value));
  }
  return node;
}

CUgraphNode add(CUgraph graph, const Expansion& expansion, const Launch& launch,
                CUcontext context) {
  CUgraphNode node = nullptr;
  switch (launch.kind) {
    case LaunchKind::kKernel:
      return add_kernel(graph, expansion, launch);
    case LaunchKind::kMemset: {
      const CUDA_MEMSET_NODE_PARAMS set = {launch.target,  launch.pitch, launch.value,
                                           launch.element, launch.width, launch.height};
      VCC_CU(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &set, context));
      return node;
    }
    case LaunchKind::kMemcpy: {
      const CUDA_MEMCPY3D copy = copy_of(launch);
      VCC_CU(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
      return node;
    }
    case LaunchKind::kEmpty:
      VCC_CU(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
      return node;
  }
  return node;
}

// Edges between launches [first, first + count), numbered from 0.
std::vector<LaunchEdge> edges_of(const Expansion& expansion, uint32_t first, uint32_t count) {
  std::vector<LaunchEdge> edges;
  if (expansion.chain) {
    for (uint32_t i = 1; i < count; ++i) edges.push_back({i - 1, i, 0, 0, 0});
  }
  for (LaunchEdge edge : expansion.edges) {
    if (edge.from < first || edge.to >= first + count || edge.to < first) continue;
    edge.from -= first;
    edge.to -= first;
    if (expansion.chain) {
      edges[edge.to - 1] = edge;
    } else {
      edges.push_back(edge);
    }
  }
  return edges;
}

bool carries(const LaunchEdge& edge) {
  return edge.type != 0 || edge.from_port != 0 || edge.to_port != 0;
}

// Plain edges in one call, those that carry data one by one: some drivers are reported to drop the
// data of edges that are added together. The attributes of the nodes are set before this.
void connect(CUgraph graph, const std::vector<CUgraphNode>& nodes,
             const std::vector<LaunchEdge>& edges) {
  std::vector<CUgraphNode> from, to;
  for (const LaunchEdge& edge : edges) {
    if (carries(edge)) {
      const CUgraphEdgeData data = {edge.from_port, edge.to_port, edge.type, {}};
      VCC_CU(cuGraphAddDependencies(graph, &nodes[edge.from], &nodes[edge.to], &data, 1));
    } else {
      from.push_back(nodes[edge.from]);
      to.push_back(nodes[edge.to]);
    }
  }
  if (from.empty()) return;
  const std::vector<CUgraphEdgeData> data(from.size());
  VCC_CU(cuGraphAddDependencies(graph, from.data(), to.data(), data.data(), from.size()));
}

[[noreturn]] void refuse(const Launch& launch, const std::string& why) {
  const std::string name =
      launch.kind == LaunchKind::kKernel ? " (" + launch.shape->function->name + ")" : "";
  throw Error(Code::kGraph,
              "the driver built another graph at node " + std::to_string(launch.node) + name, why,
              "run without graphs (--mode none) and report the driver's version");
}

std::string text_of(const LaunchEdge& edge) {
  return "type " + std::to_string(edge.type) + " from port " + std::to_string(edge.from_port) +
         " to port " + std::to_string(edge.to_port);
}

// What the driver made of the edges. A programmatic edge (the second kernel may start before the
// first has ended) that came back as a full one only orders more than was asked for: it is counted.
EdgeCounts check_edges(CUgraph graph, const Launch* launches, const std::vector<CUgraphNode>& nodes,
                       const std::vector<LaunchEdge>& edges) {
  size_t count = 0;
  VCC_CU(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  if (count != edges.size()) {
    refuse(launches[0], "the graph has " + std::to_string(count) + " edges, the table " +
                            std::to_string(edges.size()));
  }
  std::vector<CUgraphNode> from(count), to(count);
  std::vector<CUgraphEdgeData> data(count);
  if (count != 0) VCC_CU(cuGraphGetEdges(graph, from.data(), to.data(), data.data(), &count));
  std::unordered_map<CUgraphNode, uint32_t> index;
  for (uint32_t i = 0; i < nodes.size(); ++i) index[nodes[i]] = i;
  std::unordered_map<uint64_t, const LaunchEdge*> wanted;
  for (const LaunchEdge& edge : edges) wanted[uint64_t{edge.from} << 32 | edge.to] = &edge;
  EdgeCounts counts;
  for (size_t i = 0; i < count; ++i) {
    const auto source = index.find(from[i]), target = index.find(to[i]);
    if (source == index.end() || target == index.end()) {
      refuse(launches[0], "an edge has an unknown end");
    }
    const auto found = wanted.find(uint64_t{source->second} << 32 | target->second);
    const Launch& launch = launches[target->second];
    if (found == wanted.end()) refuse(launch, "it waits for a node that it should not wait for");
    const LaunchEdge& edge = *found->second;
    const LaunchEdge made = {edge.from, edge.to, data[i].type, data[i].from_port, data[i].to_port};
    if (edge.type == kProgrammatic) ++counts.programmatic;
    if (edge.type == kProgrammatic && !carries(made)) {
      ++counts.full;
    } else if (made.type != edge.type || made.from_port != edge.from_port ||
               made.to_port != edge.to_port) {
      refuse(launch, "its edge has " + text_of(made) + ", not " + text_of(edge));
    }
  }
  return counts;
}

void check_attributes(const Launch* launches, const std::vector<CUgraphNode>& nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (launches[i].kind != LaunchKind::kKernel) continue;
    for (const CUlaunchAttribute& attribute : launches[i].shape->attributes) {
      CUlaunchAttributeValue found = {};
      VCC_CU(cuGraphKernelNodeGetAttribute(nodes[i], attribute.id, &found));
      if (std::memcmp(&found, &attribute.value, sizeof found) != 0) {
        refuse(launches[i], "launch attribute " + std::to_string(attribute.id) + " differs");
      }
    }
  }
}

void launch_kernel(const Expansion& expansion, const Launch& launch, CUstream stream) {
  const Shape& shape = *launch.shape;
  void** params = const_cast<void**>(expansion.pointers.data() + launch.pointers);
  if (shape.attributes.empty()) {
    VCC_CU(cuLaunchKernel(shape.function->handle, launch.grid[0], launch.grid[1], launch.grid[2],
                          shape.block[0], shape.block[1], shape.block[2], shape.shared, stream,
                          params, nullptr));
    return;
  }
  CUlaunchConfig config = {};
  config.gridDimX = launch.grid[0];
  config.gridDimY = launch.grid[1];
  config.gridDimZ = launch.grid[2];
  config.blockDimX = shape.block[0];
  config.blockDimY = shape.block[1];
  config.blockDimZ = shape.block[2];
  config.sharedMemBytes = shape.shared;
  config.hStream = stream;
  config.attrs = const_cast<CUlaunchAttribute*>(shape.attributes.data());
  config.numAttrs = static_cast<unsigned>(shape.attributes.size());
  VCC_CU(cuLaunchKernelEx(&config, shape.function->handle, params, nullptr));
}

void set_memory(const Launch& one, CUstream stream) {
  const auto byte = static_cast<unsigned char>(one.value);
  const auto half = static_cast<unsigned short>(one.value);
  if (one.height <= 1) {
    if (one.element == 1) VCC_CU(cuMemsetD8Async(one.target, byte, one.width, stream));
    if (one.element == 2) VCC_CU(cuMemsetD16Async(one.target, half, one.width, stream));
    if (one.element == 4) VCC_CU(cuMemsetD32Async(one.target, one.value, one.width, stream));
    return;
  }
  const auto [target, pitch, width, height] =
      std::tuple(one.target, one.pitch, one.width, one.height);
  if (one.element == 1) VCC_CU(cuMemsetD2D8Async(target, pitch, byte, width, height, stream));
  if (one.element == 2) VCC_CU(cuMemsetD2D16Async(target, pitch, half, width, height, stream));
  if (one.element == 4) {
    VCC_CU(cuMemsetD2D32Async(target, pitch, one.value, width, height, stream));
  }
}

}  // namespace

Graph::Graph(const Expansion& expansion, uint32_t first, uint32_t count, CUcontext context)
    : nodes_(count) {
  const Draft draft;
  const Launch* launches = expansion.launches.data() + first;
  std::vector<CUgraphNode> nodes(count);
  for (uint32_t i = 0; i < count; ++i) {
    nodes[i] = add(draft.graph, expansion, launches[i], context);
  }
  const auto edges = edges_of(expansion, first, count);
  connect(draft.graph, nodes, edges);
  if (count != 0) {
    edges_ = check_edges(draft.graph, launches, nodes, edges);
    check_attributes(launches, nodes);
  }
  VCC_CU(cuGraphInstantiate(&executable_, draft.graph, 0));
}

Graph::~Graph() {
  if (executable_ != nullptr) driver().cuGraphExecDestroy(executable_);
}

Graph::Graph(Graph&& other) noexcept
    : executable_(std::exchange(other.executable_, nullptr)),
      nodes_(other.nodes_),
      edges_(other.edges_) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(executable_, other.executable_);
  std::swap(nodes_, other.nodes_);
  std::swap(edges_, other.edges_);
  return *this;
}

void Graph::launch(CUstream stream) const { VCC_CU(cuGraphLaunch(executable_, stream)); }

void launch_plainly(const Expansion& expansion, uint32_t first, uint32_t count, CUstream stream) {
  for (uint32_t i = first; i < first + count; ++i) {
    const Launch& one = expansion.launches[i];
    switch (one.kind) {
      case LaunchKind::kKernel:
        launch_kernel(expansion, one, stream);
        break;
      case LaunchKind::kMemset:
        set_memory(one, stream);
        break;
      case LaunchKind::kMemcpy:
        VCC_CU(cuMemcpyDtoDAsync(one.target, one.source, one.width, stream));
        break;
      case LaunchKind::kEmpty:
        break;
    }
  }
}

}  // namespace vcc
