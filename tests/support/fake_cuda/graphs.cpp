// Graphs of the double: nodes and edges as they were added, executables as copies of them.
#include <algorithm>
#include <cstring>

#include "fake.h"

namespace fake {

namespace {

struct Executable {
  std::vector<Node> order;             // in an order that the edges allow
  std::map<const Node*, size_t> from;  // the graph's node to its copy
};

std::map<CUgraph, std::unique_ptr<Graph>> graphs;
std::map<CUgraphExec, std::unique_ptr<Executable>> executables;
std::map<const Node*, Graph*> owners;

CUresult find_graph(CUgraph handle, Graph** graph) {
  const auto found = graphs.find(handle);
  if (found == graphs.end()) return CUDA_ERROR_INVALID_HANDLE;
  *graph = found->second.get();
  return CUDA_SUCCESS;
}

CUresult find_node(CUgraphNode handle, CUgraphNodeType type, Node** node) {
  *node = reinterpret_cast<Node*>(handle);
  if (owners.count(*node) == 0) return CUDA_ERROR_INVALID_HANDLE;
  return (*node)->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The strides of one side of a copy, and whether its memory may be touched.
struct Side {
  char* start;
  size_t pitch, height;
};

bool side_of(bool device, CUdeviceptr address, const void* pointer, size_t x, size_t y, size_t z,
             size_t pitch, size_t height, const CUDA_MEMCPY3D& copy, Side* side) {
  side->pitch = pitch == 0 ? copy.WidthInBytes : pitch;
  side->height = height == 0 ? copy.Height : height;
  const size_t skip = (z * side->height + y) * side->pitch + x;
  const CUdeviceptr base = device ? address : reinterpret_cast<CUdeviceptr>(pointer);
  side->start = reinterpret_cast<char*>(base + skip);
  const size_t extent =
      ((copy.Depth - 1) * side->height + copy.Height - 1) * side->pitch + copy.WidthInBytes;
  return !device || accessible(base + skip, extent);
}

CUresult fill_kernel(Node& node, const CUDA_KERNEL_NODE_PARAMS& given) {
  Launch launch = {
      reinterpret_cast<Function*>(given.func != nullptr ? reinterpret_cast<void*>(given.func)
                                                        : reinterpret_cast<void*>(given.kern)),
      {given.gridDimX, given.gridDimY, given.gridDimZ},
      {given.blockDimX, given.blockDimY, given.blockDimZ},
      given.sharedMemBytes,
      {},
      node.launch.attributes};
  if (const CUresult failed = check(launch)) return failed;
  if (const CUresult failed = take_parameters(launch, given.kernelParams, given.extra)) {
    return failed;
  }
  node.type = CU_GRAPH_NODE_TYPE_KERNEL;
  node.launch = std::move(launch);
  return CUDA_SUCCESS;
}

CUresult add_by_handle(CUgraphNode* made, CUgraph handle, const CUgraphNode* after, size_t count,
                       std::unique_ptr<Node> node) {
  Graph* graph = nullptr;
  if (const CUresult failed = find_graph(handle, &graph)) return failed;
  std::vector<Node*> before;
  for (size_t i = 0; i < count; ++i) before.push_back(reinterpret_cast<Node*>(after[i]));
  Node* added = nullptr;
  const CUresult result = add_node(*graph, std::move(node), before, &added);
  *made = reinterpret_cast<CUgraphNode>(added);
  return result;
}

CUresult run_node(const Node& node) {
  switch (node.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return run(node.launch);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return run_memset(node.memset);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return run_memcpy(node.memcpy);
    default:
      return CUDA_SUCCESS;
  }
}

}  // namespace

CUresult add_node(Graph& graph, std::unique_ptr<Node> node, const std::vector<Node*>& after,
                  Node** made) {
  for (Node* before : after) {
    const auto owner = owners.find(before);
    if (owner == owners.end() || owner->second != &graph) return CUDA_ERROR_INVALID_VALUE;
  }
  *made = node.get();
  owners[node.get()] = &graph;
  for (Node* before : after) graph.edges.push_back({before, node.get(), {}});
  graph.nodes.push_back(std::move(node));
  return CUDA_SUCCESS;
}

CUresult run_memset(const CUDA_MEMSET_NODE_PARAMS& node) {
  const size_t size = node.elementSize;
  if (size != 1 && size != 2 && size != 4) return CUDA_ERROR_INVALID_VALUE;
  if (node.dst % size != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t row = 0; row < node.height; ++row) {
    const CUdeviceptr start = node.dst + row * node.pitch;
    if (!accessible(start, node.width * size)) return CUDA_ERROR_INVALID_VALUE;
    char* at = reinterpret_cast<char*>(start);
    if (size == 1) {
      std::memset(at, static_cast<int>(node.value & 0xff), node.width);
      continue;
    }
    for (size_t i = 0; i < node.width; ++i) std::memcpy(at + i * size, &node.value, size);
  }
  return CUDA_SUCCESS;
}

CUresult run_memcpy(const CUDA_MEMCPY3D& node) {
  if (node.WidthInBytes == 0 || node.Height == 0 || node.Depth == 0) return CUDA_SUCCESS;
  Side from, to;
  if (!side_of(node.srcMemoryType == CU_MEMORYTYPE_DEVICE, node.srcDevice, node.srcHost,
               node.srcXInBytes, node.srcY, node.srcZ, node.srcPitch, node.srcHeight, node,
               &from) ||
      !side_of(node.dstMemoryType == CU_MEMORYTYPE_DEVICE, node.dstDevice, node.dstHost,
               node.dstXInBytes, node.dstY, node.dstZ, node.dstPitch, node.dstHeight, node, &to)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t z = 0; z < node.Depth; ++z) {
    for (size_t y = 0; y < node.Height; ++y) {
      std::memmove(to.start + (z * to.height + y) * to.pitch,
                   from.start + (z * from.height + y) * from.pitch, node.WidthInBytes);
    }
  }
  return CUDA_SUCCESS;
}

CUgraph adopt(std::unique_ptr<Graph> graph) {
  const auto handle = reinterpret_cast<CUgraph>(graph.get());
  graphs[handle] = std::move(graph);
  return handle;
}

void reset_graphs() {
  graphs.clear();
  executables.clear();
  owners.clear();
}

}  // namespace fake

using namespace fake;

#define ENTER(name)                    \
  const std::lock_guard guard(lock()); \
  if (const CUresult refused = enter(name)) return refused
#define GRAPH(handle)     \
  Graph* graph = nullptr; \
  if (const CUresult failed = find_graph(handle, &graph)) return failed
#define NODE(handle, type) \
  Node* node = nullptr;    \
  if (const CUresult failed = find_node(handle, type, &node)) return failed

FAKE_API CUresult cuGraphCreate(CUgraph* handle, unsigned flags) {
  ENTER("cuGraphCreate");
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = adopt(std::make_unique<Graph>());
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphDestroy(CUgraph handle) {
  ENTER("cuGraphDestroy");
  GRAPH(handle);
  for (const auto& node : graph->nodes) owners.erase(node.get());
  graphs.erase(handle);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphAddKernelNode_v2(CUgraphNode* made, CUgraph handle,
                                          const CUgraphNode* after, size_t count,
                                          const CUDA_KERNEL_NODE_PARAMS* parameters) {
  ENTER("cuGraphAddKernelNode");
  auto node = std::make_unique<Node>();
  if (const CUresult failed = fill_kernel(*node, *parameters)) return failed;
  return add_by_handle(made, handle, after, count, std::move(node));
}

FAKE_API CUresult cuGraphAddMemsetNode(CUgraphNode* made, CUgraph handle, const CUgraphNode* after,
                                       size_t count, const CUDA_MEMSET_NODE_PARAMS* parameters,
                                       CUcontext context) {
  ENTER("cuGraphAddMemsetNode");
  if (!known_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  auto node = std::make_unique<Node>();
  node->type = CU_GRAPH_NODE_TYPE_MEMSET;
  node->memset = *parameters;
  return add_by_handle(made, handle, after, count, std::move(node));
}

FAKE_API CUresult cuGraphAddMemcpyNode(CUgraphNode* made, CUgraph handle, const CUgraphNode* after,
                                       size_t count, const CUDA_MEMCPY3D* parameters,
                                       CUcontext context) {
  ENTER("cuGraphAddMemcpyNode");
  if (!known_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  auto node = std::make_unique<Node>();
  node->type = CU_GRAPH_NODE_TYPE_MEMCPY;
  node->memcpy = *parameters;
  return add_by_handle(made, handle, after, count, std::move(node));
}

FAKE_API CUresult cuGraphAddEmptyNode(CUgraphNode* made, CUgraph handle, const CUgraphNode* after,
                                      size_t count) {
  ENTER("cuGraphAddEmptyNode");
  return add_by_handle(made, handle, after, count, std::make_unique<Node>());
}

FAKE_API CUresult cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode* from,
                                            const CUgraphNode* to, const CUgraphEdgeData* data,
                                            size_t count) {
  ENTER("cuGraphAddDependencies");
  GRAPH(handle);
  for (size_t i = 0; i < count; ++i) {
    auto* first = reinterpret_cast<Node*>(from[i]);
    auto* second = reinterpret_cast<Node*>(to[i]);
    const auto one = owners.find(first), other = owners.find(second);
    if (one == owners.end() || other == owners.end() || one->second != graph ||
        other->second != graph || first == second) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const bool twice = std::any_of(graph->edges.begin(), graph->edges.end(), [&](const Edge& edge) {
      return edge.from == first && edge.to == second;
    });
    if (twice) return CUDA_ERROR_INVALID_VALUE;
    const CUgraphEdgeData plain = {};
    // Some drivers are reported to drop what edges carry. VCC_FAKE_DROP_EDGE_DATA: 1 always, 2 of
    // edges that are added together, 3 the port alone.
    const auto drops = number("VCC_FAKE_DROP_EDGE_DATA", 0);
    const bool dropped = drops == 1 || (drops == 2 && count > 1);
    CUgraphEdgeData kind = data == nullptr || dropped ? plain : data[i];
    if (drops == 3) kind.from_port = 0;
    const bool kernels =
        first->type == CU_GRAPH_NODE_TYPE_KERNEL && second->type == CU_GRAPH_NODE_TYPE_KERNEL;
    if (kind.type > 1 || (kind.type == 1 && !kernels)) return CUDA_ERROR_INVALID_VALUE;
    graph->edges.push_back({first, second, kind});
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) {
  ENTER("cuGraphGetNodes");
  GRAPH(handle);
  if (nodes != nullptr) {
    *count = std::min(*count, graph->nodes.size());
    for (size_t i = 0; i < *count; ++i) {
      nodes[i] = reinterpret_cast<CUgraphNode>(graph->nodes[i].get());
    }
  } else {
    *count = graph->nodes.size();
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to,
                                     CUgraphEdgeData* data, size_t* count) {
  ENTER("cuGraphGetEdges");
  GRAPH(handle);
  if (from == nullptr) {
    *count = graph->edges.size();
    return CUDA_SUCCESS;
  }
  *count = std::min(*count, graph->edges.size());
  for (size_t i = 0; i < *count; ++i) {
    from[i] = reinterpret_cast<CUgraphNode>(graph->edges[i].from);
    to[i] = reinterpret_cast<CUgraphNode>(graph->edges[i].to);
    if (data != nullptr) data[i] = graph->edges[i].data;
  }
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  ENTER("cuGraphNodeGetType");
  auto* node = reinterpret_cast<Node*>(handle);
  if (owners.count(node) == 0) return CUDA_ERROR_INVALID_HANDLE;
  *type = node->type;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* out) {
  ENTER("cuGraphKernelNodeGetParams");
  NODE(handle, CU_GRAPH_NODE_TYPE_KERNEL);
  Launch& launch = node->launch;
  node->pointers.clear();
  for (const Parameter& parameter : launch.function->parameters) {
    node->pointers.push_back(&launch.parameters[parameter.offset]);
  }
  *out = {reinterpret_cast<CUfunction>(launch.function),
          launch.grid[0],
          launch.grid[1],
          launch.grid[2],
          launch.block[0],
          launch.block[1],
          launch.block[2],
          launch.shared,
          node->pointers.data(),
          nullptr,
          nullptr,
          nullptr};
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode handle,
                                                const CUDA_KERNEL_NODE_PARAMS* parameters) {
  ENTER("cuGraphKernelNodeSetParams");
  NODE(handle, CU_GRAPH_NODE_TYPE_KERNEL);
  return fill_kernel(*node, *parameters);
}

FAKE_API CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUlaunchAttributeID id,
                                                CUlaunchAttributeValue* value) {
  ENTER("cuGraphKernelNodeGetAttribute");
  NODE(handle, CU_GRAPH_NODE_TYPE_KERNEL);
  if (id < 1 || id > 16) return CUDA_ERROR_INVALID_VALUE;
  std::memset(value, 0, sizeof *value);
  const auto found = node->launch.attributes.find(id);
  if (found != node->launch.attributes.end()) *value = found->second;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUlaunchAttributeID id,
                                                const CUlaunchAttributeValue* value) {
  ENTER("cuGraphKernelNodeSetAttribute");
  NODE(handle, CU_GRAPH_NODE_TYPE_KERNEL);
  if (id < 1 || id > 16) return CUDA_ERROR_INVALID_VALUE;
  if (number("VCC_FAKE_DROP_ATTRIBUTES", 0) == 0) node->launch.attributes[id] = *value;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* out) {
  ENTER("cuGraphMemsetNodeGetParams");
  NODE(handle, CU_GRAPH_NODE_TYPE_MEMSET);
  *out = node->memset;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* out) {
  ENTER("cuGraphMemcpyNodeGetParams");
  NODE(handle, CU_GRAPH_NODE_TYPE_MEMCPY);
  *out = node->memcpy;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode, CUgraph*) {
  ENTER("cuGraphChildGraphNodeGetGraph");
  return CUDA_ERROR_INVALID_VALUE;  // the double makes no child graphs
}

FAKE_API CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph_handle,
                                              unsigned long long) {
  ENTER("cuGraphInstantiate");
  GRAPH(graph_handle);
  std::map<const Node*, size_t> waits;
  std::map<const Node*, std::vector<Node*>> next;
  for (const Edge& edge : graph->edges) {
    ++waits[edge.to];
    next[edge.from].push_back(edge.to);
  }
  std::vector<Node*> ready;
  for (const auto& node : graph->nodes) {
    if (waits[node.get()] == 0) ready.push_back(node.get());
  }
  auto made = std::make_unique<Executable>();
  for (size_t i = 0; i < ready.size(); ++i) {
    Node* node = ready[i];
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
      if (const CUresult failed = check(node->launch)) return failed;
    }
    made->from[node] = made->order.size();
    made->order.push_back(*node);
    for (Node* later : next[node]) {
      if (--waits[later] == 0) ready.push_back(later);
    }
  }
  if (ready.size() != graph->nodes.size()) return CUDA_ERROR_INVALID_VALUE;  // a cycle
  *handle = reinterpret_cast<CUgraphExec>(made.get());
  executables[*handle] = std::move(made);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node,
                                                    const CUDA_KERNEL_NODE_PARAMS* parameters) {
  ENTER("cuGraphExecKernelNodeSetParams");
  const auto found = executables.find(handle);
  if (found == executables.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto at = found->second->from.find(reinterpret_cast<Node*>(node));
  if (at == found->second->from.end()) return CUDA_ERROR_INVALID_VALUE;
  return fill_kernel(found->second->order[at->second], *parameters);
}

FAKE_API CUresult cuGraphExecDestroy(CUgraphExec handle) {
  ENTER("cuGraphExecDestroy");
  return executables.erase(handle) == 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphUpload(CUgraphExec handle, CUstream) {
  ENTER("cuGraphUpload");
  return executables.count(handle) == 0 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

FAKE_API CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  ENTER("cuGraphLaunch");
  const auto found = executables.find(handle);
  if (found == executables.end()) return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream = nullptr;
  if (const CUresult failed = find(stream_handle, &stream)) return failed;
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  for (const Node& node : found->second->order) {
    if (const CUresult failed = run_node(node)) return failed;
  }
  return CUDA_SUCCESS;
}
