// Cut a table's bytes into sections of records, trusting nothing in them.
#include <algorithm>
#include <cstring>

#include "abi/error.h"
#include "table/records.h"

namespace vcc::table {

namespace {

struct Shape {
  const char* name;
  uint32_t record;
  uint64_t most;
};

constexpr Shape kShapes[kSections] = {
    {"strings", 1, kMostBytes},
    {"symbols", sizeof(Symbol), 16},
    {"exprs", sizeof(Expr), 1'000'000},
    {"regions", sizeof(Region), 256},
    {"lists", sizeof(uint32_t), 1'000'000},
    {"tensors", sizeof(Tensor), 100'000},
    {"cubins", sizeof(Cubin), 100'000},
    {"kernels", sizeof(Kernel), 100'000},
    {"attributes", sizeof(Attribute), 1'000'000},
    {"nodes", sizeof(Node), 1'000'000},
    {"params", sizeof(Param), 3'000'000},
    {"gemms", sizeof(Gemm), 100'000},
    {"variants", sizeof(Variant), 100'000},
    {"segments", sizeof(Segment), 100'000},
    {"edges", sizeof(Edge), 6'000'000},
    {"bytes", 1, kMostBytes},
};

constexpr uint64_t kFront = sizeof(Header) + kSections * sizeof(Entry);

[[noreturn]] void refuse_at(const std::string& place, const std::string& why) {
  throw Error(Code::kIntegrity, "node table refused", place + ": " + why,
              "build or record the graph again");
}

std::string n(uint64_t number) { return std::to_string(number); }

void check_header(std::span<const std::byte> bytes) {
  check_file_size(bytes.size());
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof header.magic) != 0)
    refuse_header("not a node table");
  if (header.version != kVersion)
    refuse_header("version " + n(header.version) + ", not " + n(kVersion));
  if (header.flags != 0 || header.zero32 != 0 || header.zero64 != 0)
    refuse_header("a field that must be zero is not");
  if (header.size != bytes.size())
    refuse_header("says " + n(header.size) + " bytes, has " + n(bytes.size()));
  if (header.sections != kSections)
    refuse_header(n(header.sections) + " sections, not " + n(kSections));
}

// The bytes of section `index`; `end` is where the one before ends, and becomes its own end.
std::span<const std::byte> place(std::span<const std::byte> bytes, uint32_t index, uint64_t& end) {
  const auto section = static_cast<SectionKind>(index);
  const Shape& shape = kShapes[index];
  Entry entry;
  std::memcpy(&entry, bytes.data() + sizeof(Header) + index * sizeof(Entry), sizeof entry);
  if (entry.kind != section) refuse(section, "has kind " + n(static_cast<uint32_t>(entry.kind)));
  if (entry.record_size != shape.record)
    refuse(section, "records of " + n(entry.record_size) + " bytes, not " + n(shape.record));
  if (entry.count > shape.most)
    refuse(section, n(entry.count) + " records, at most " + n(shape.most));
  const uint64_t start = (end + kAlignment - 1) / kAlignment * kAlignment;
  if (entry.offset != start)
    refuse(section, "starts at byte " + n(entry.offset) + ", not " + n(start));
  const uint64_t length = entry.count * shape.record;
  if (start + length > bytes.size())
    refuse(section, "ends at byte " + n(start + length) + " of " + n(bytes.size()));
  const auto padding = bytes.subspan(end, start - end);
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; }))
    refuse(section, "bytes before it are not zero");
  end = start + length;
  return bytes.subspan(start, length);
}

template <class Record>
void take(std::span<const Record>& into, std::span<const std::byte> section) {
  into = {reinterpret_cast<const Record*>(section.data()), section.size() / sizeof(Record)};
}

}  // namespace

void refuse(SectionKind section, uint64_t index, const std::string& why) {
  refuse_at(std::string(kShapes[static_cast<uint32_t>(section)].name) + "[" + n(index) + "]", why);
}

void refuse(SectionKind section, const std::string& why) {
  refuse_at(kShapes[static_cast<uint32_t>(section)].name, why);
}

void refuse_header(const std::string& why) { refuse_at("header", why); }

void check_file_size(uint64_t size) {
  if (size < kFront || size > kMostBytes)
    refuse_header(n(size) + " bytes, not " + n(kFront) + " to " + n(kMostBytes));
}

Records read_frame(std::span<const std::byte> bytes) {
  check_header(bytes);
  std::span<const std::byte> sections[kSections];
  uint64_t end = kFront;
  for (uint32_t index = 0; index < kSections; ++index) sections[index] = place(bytes, index, end);
  if (end != bytes.size()) refuse(SectionKind::kBytes, n(bytes.size() - end) + " bytes follow it");
  Records records;
  const auto* section = sections;
  take(records.strings, *section++);
  take(records.symbols, *section++);
  take(records.exprs, *section++);
  take(records.regions, *section++);
  take(records.lists, *section++);
  take(records.tensors, *section++);
  take(records.cubins, *section++);
  take(records.kernels, *section++);
  take(records.attributes, *section++);
  take(records.nodes, *section++);
  take(records.params, *section++);
  take(records.gemms, *section++);
  take(records.variants, *section++);
  take(records.segments, *section++);
  take(records.edges, *section++);
  take(records.bytes, *section++);
  return records;
}

}  // namespace vcc::table
