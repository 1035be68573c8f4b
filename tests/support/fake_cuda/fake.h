// A double of libcuda for tests: addresses, memory, modules, graphs and streams behave as on a
// device, misuse is refused as there, copies and memsets act on real bytes, and no kernel runs.
// Everything that a call does happens before it returns.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "driver/cuda_types.h"
#include "driver/functions.h"

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace fake {

using namespace vcc;

// What a call of this name must answer before it does anything: counts and logs it, fails it when
// told to, and refuses it in a forked child, before cuInit, after a fault, or without a context.
enum class Needs { kNothing, kInit, kContext };
CUresult enter(const char* name, Needs needs = Needs::kContext);

std::recursive_mutex& lock();
void log_line(const std::string& text);
void log_launch(const std::string& text);
std::string setting(const char* name, const char* otherwise);
long long number(const char* name, long long otherwise);

// device.cpp
int capability();
bool known_context(CUcontext context);

// memory.cpp: true when every byte is mapped and may be read and written.
bool accessible(CUdeviceptr address, size_t size);
void reset_memory();

// modules.cpp
struct Parameter {
  size_t offset, size;
};

struct Function {
  std::string name;
  struct Module* module = nullptr;
  std::vector<Parameter> parameters;
  size_t parameter_bytes = 0;
  unsigned required[3] = {0, 0, 0};  // a block of exactly this shape, when not 0
  unsigned threads = 1024;
  int shared = 0;  // static
  std::map<int, int> attributes;
};

struct Module {
  std::map<std::string, std::unique_ptr<Function>> functions;
};

struct Launch {
  Function* function = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared = 0;
  std::string parameters;  // the parameter block
  std::map<int, CUlaunchAttributeValue> attributes;
};

bool known(const Function* function);
CUresult check(const Launch& launch);
CUresult take_parameters(Launch& launch, void** parameters, void** extra);
CUresult run(const Launch& launch);  // logs it; a pending fault strikes here
void reset_modules();

// graphs.cpp
struct Node {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  Launch launch;
  std::vector<void*> pointers;  // into launch.parameters, for those who read the node back
  CUDA_MEMSET_NODE_PARAMS memset = {};
  CUDA_MEMCPY3D memcpy = {};
};

struct Edge {
  Node* from;
  Node* to;
  CUgraphEdgeData data;
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Edge> edges;
};

CUresult add_node(Graph& graph, std::unique_ptr<Node> node, const std::vector<Node*>& after,
                  Node** made);
CUresult run_memset(const CUDA_MEMSET_NODE_PARAMS& node);
CUresult run_memcpy(const CUDA_MEMCPY3D& node);
CUgraph adopt(std::unique_ptr<Graph> graph);
void reset_graphs();

// streams.cpp: where an operation on a stream goes.
struct Capture {
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
};

struct Stream {
  std::shared_ptr<Capture> capture;
  std::vector<Node*> last;  // of the capture: what the next operation comes after
};

CUresult find(CUstream handle, Stream** stream);
CUresult record(Stream& stream, std::unique_ptr<Node> node);
bool any_capture();
void reset_streams();

// A fault that every later call answers; 0 when there is none.
extern int fault;
extern int pending_fault;

}  // namespace fake
