// One node of a table into a launch.
#include "player/emit.h"

#include <span>
#include <string>

#include "abi/error.h"

namespace vcc {

using table::NodeKind;

namespace {

// What a node that is no kernel is given: the fields of its parameter block.
struct MemsetFields {
  uint64_t target;
  uint32_t value, element;
  uint64_t width, height, pitch;
};
struct MemcpyFields {
  uint64_t target, source, bytes, unused[2];
};
static_assert(sizeof(MemsetFields) == table::kFixedBlock);
static_assert(sizeof(MemcpyFields) == table::kFixedBlock);

}  // namespace

void refuse_launch(uint32_t node, const std::string& why) {
  throw Error(Code::kGraph, "cannot launch node " + std::to_string(node) + " of the table", why);
}

void set_grid(Launch& launch, int axis, int64_t size) {
  if (size < 1 || size > table::kGridLimits[axis]) {
    refuse_launch(launch.node, "its grid has size " + std::to_string(size) + " in dimension " +
                                   std::to_string(axis));
  }
  launch.grid[axis] = static_cast<uint32_t>(size);
}

std::span<std::byte> reserve(Launch& launch, Expansion& out) {
  const Function& function = *launch.shape->function;
  launch.block = (out.blocks.size() + 15) & ~uint64_t{15};
  out.blocks.resize(launch.block + function.param_bytes);
  launch.pointers = out.pointers.size();
  for (const auto& slot : function.slots) {
    out.pointers.push_back(reinterpret_cast<void*>(launch.block + slot.offset));
  }
  return {out.blocks.data() + launch.block, function.param_bytes};
}

void Expander::emit(const Source& source, const table::Node& node, uint32_t blame,
                    Expansion& out) const {
  if (node.kind == NodeKind::kGemm) return emit_gemm(source, node, blame, out);
  Launch launch;
  launch.node = blame;
  if (node.kind == NodeKind::kKernel) {
    launch.kind = LaunchKind::kKernel;
    launch.shape = &source.shapes[node.target];
    for (int axis = 0; axis < 3; ++axis) {
      set_grid(launch, axis, source.values[node.grid[axis]]);
    }
    fill(source.table.records(), node, source.values, source.bases, reserve(launch, out));
  } else if (node.kind == NodeKind::kMemset) {
    MemsetFields fields;
    fill(source.table.records(), node, source.values, source.bases,
         std::as_writable_bytes(std::span(&fields, 1)));
    const bool something = fields.width != 0 && fields.height != 0;
    launch.kind = something ? LaunchKind::kMemset : LaunchKind::kEmpty;
    launch.target = fields.target;
    launch.value = fields.value;
    launch.element = fields.element;
    launch.width = fields.width;
    launch.height = fields.height;
    launch.pitch = fields.pitch;
  } else if (node.kind == NodeKind::kMemcpy) {
    MemcpyFields fields;
    fill(source.table.records(), node, source.values, source.bases,
         std::as_writable_bytes(std::span(&fields, 1)));
    launch.kind = fields.bytes != 0 ? LaunchKind::kMemcpy : LaunchKind::kEmpty;
    launch.target = fields.target;
    launch.source = fields.source;
    launch.width = fields.bytes;
  }
  out.launches.push_back(launch);
}

}  // namespace vcc
