#include "table/table_abi.h"

#include <algorithm>

#include "abi/error.h"
#include "table/reader.h"

using vcc::guarded;

namespace {

vcc::table::Table table_of(const void* data, uint64_t size) {
  return vcc::table::Table(std::span(static_cast<const std::byte*>(data), size));
}

}  // namespace

int32_t vcc_table_check(const void* data, uint64_t size) {
  return guarded([&] { table_of(data, size); });
}

int32_t vcc_table_evaluate(const void* data, uint64_t size, const int64_t* sizes, uint64_t count,
                           int64_t* values, uint64_t capacity, uint64_t* needed) {
  return guarded([&] {
    std::vector<int64_t> found;
    table_of(data, size).evaluate({sizes, count}, found);
    *needed = found.size();
    if (found.size() > capacity)
      throw vcc::Error(vcc::Code::kUsage, "cannot evaluate a node table",
                       "it has " + std::to_string(found.size()) + " expressions, room is for " +
                           std::to_string(capacity));
    std::copy(found.begin(), found.end(), values);
  });
}
