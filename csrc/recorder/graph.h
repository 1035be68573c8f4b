// A captured graph as a flat description in JSON: nodes in order, edges with their data.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "recorder/calls.h"

namespace vcc::recorder {

// graph  = {"nodes": [node...], "edges": [[from, to, type, from_port, to_port]...]}
// node   = {"kind": "kernel", "function", "cubin": number of Cubins, "grid": [3], "block": [3],
//           "shared", "parameters": hex, "spans": [[offset, size]...], "live": [offset...],
//           "host": [offset...], "attributes": [[id, hex]...], "max_dynamic", "carveout",
//           "non_portable"}
//        | {"kind": "memset", "target", "pitch", "value", "element", "width", "height"}
//        | {"kind": "memcpy", "source", "target", "bytes", "source_memory", "target_memory",
//           "plain": 1 when it is one run of bytes}
//        | {"kind": "empty"} | {"kind": "other", "type": CUgraphNodeType}
// `live` are the 8-byte steps of the parameters that the driver knows as an address in a present
// allocation, `host` those that are addresses of this process (host_words.h). Kinds that a node
// table cannot hold are described, not refused: the reader decides.
std::string describe_graph(CUgraph graph);

// Offset and size of each of a kernel's parameters; throws when the driver fails before the end.
std::vector<std::pair<size_t, size_t>> parameter_spans(CUfunction function);

}  // namespace vcc::recorder
