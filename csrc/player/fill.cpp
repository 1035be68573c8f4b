#include "player/fill.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "abi/error.h"

namespace vcc {
namespace {

using table::ParamKind;

void put(std::span<std::byte> block, const table::Param& param, const void* from) {
  std::memcpy(block.data() + param.offset, from, table::width_of(param));
}

}  // namespace

void fill(const table::Records& records, const table::Node& node, std::span<const int64_t> values,
          std::span<const uint64_t> bases, std::span<std::byte> block) {
  std::fill(block.begin(), block.end(), std::byte{0});
  for (const auto& param : records.params_of(node)) {
    if (param.kind == ParamKind::kNull) {
      const uint64_t null = 0;
      put(block, param, &null);
    } else if (param.kind == ParamKind::kBytes) {
      put(block, param, records.bytes.data() + param.expr);
    } else if (param.kind == ParamKind::kPointer) {
      const uint64_t address = bases[param.region] + static_cast<uint64_t>(values[param.expr]);
      put(block, param, &address);
    } else {
      const int64_t value = values[param.expr];
      const bool number = param.kind == ParamKind::kI32 && node.kind == table::NodeKind::kKernel;
      if (number && value > INT32_MAX) {
        throw Error(
            Code::kGraph,
            "cannot launch " + std::string(records.text(records.kernels[node.target].function)),
            std::to_string(value) + " does not fit its 32-bit parameter at byte " +
                std::to_string(param.offset));
      }
      put(block, param, &value);  // little endian: of 4 bytes the low ones
    }
  }
}

uint64_t bytes_of(const table::Records& records, const table::Tensor& tensor,
                  std::span<const int64_t> values) {
  uint64_t bytes = table::kItemSizes[tensor.dtype];
  for (const uint32_t dim : records.lists.subspan(tensor.first_dim, tensor.dims)) {
    bytes *= static_cast<uint64_t>(values[dim]);
  }
  return bytes;
}

}  // namespace vcc
