// Fuzz target: any bytes are a table that can be played at every size, or are refused as damaged.
#include <cstdlib>

#include "abi/error.h"
#include "table/reader.h"

namespace {

using namespace vcc;
using namespace vcc::table;

void require(bool holds) {
  if (!holds) std::abort();
}

// Touch everything that a player would read without a check of its own.
uint64_t read_all(const Table& table, std::span<const int64_t> values) {
  const Records& records = table.records();
  uint64_t sum = 0;
  for (uint32_t i = 0; i < table.symbols().size(); ++i)
    require(table.find_symbol(table.text(table.symbols()[i].name)) == i);
  for (uint32_t i = 0; i < table.regions().size(); ++i)
    require(table.find_region(table.regions()[i].kind, table.regions()[i].index) == i);
  for (const Tensor& tensor : records.tensors) {
    require(table.find_tensor(records.text(tensor.name)) == &tensor);
    require(values[tensor.offset] <= values[records.regions[tensor.region].size]);
    for (const uint32_t dim : records.lists.subspan(tensor.first_dim, tensor.dims))
      sum += static_cast<uint64_t>(values[dim]);
  }
  for (const Kernel& kernel : records.kernels) {
    sum += records.cubins[kernel.cubin].size + records.text(kernel.function).size();
    sum += records.attributes.subspan(kernel.first_attribute, kernel.attributes).size();
  }
  for (const Node& node : records.nodes)
    for (const Param& param : records.params_of(node)) {
      if (param.kind == ParamKind::kBytes) sum += records.bytes[param.expr + param.size - 1];
      if (param.kind != ParamKind::kPointer) continue;
      require(0 <= values[param.expr]);
      require(values[param.expr] <= values[records.regions[param.region].size]);
    }
  for (const Segment& segment : records.segments)
    sum += records.text(segment.name).size() +
           records.nodes.subspan(segment.first_node, segment.nodes).size();
  return sum;
}

void play(const Table& table) {
  std::vector<int64_t> low, high, middle, values;
  for (const Symbol& symbol : table.records().symbols) {
    low.push_back(symbol.low);
    high.push_back(symbol.high);
    middle.push_back(symbol.low + (symbol.high - symbol.low) / 3);
  }
  for (const auto& sizes : {low, high, middle}) {
    try {
      table.evaluate(sizes, values);
    } catch (const Error& error) {
      require(error.code == Code::kGraph && sizes == middle);  // the ends were checked on reading
      continue;
    }
    volatile uint64_t used = read_all(table, values);
    (void)used;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    play(Table(std::span(reinterpret_cast<const std::byte*>(data), size)));
  } catch (const Error& error) {
    require(error.code == Code::kIntegrity);
  }
  return 0;
}
