#include "cubin.h"

#include <cstring>
#include <optional>

#include "abi/error.h"

namespace vcc {
namespace {

constexpr std::string_view kInfo = ".nv.info.";
constexpr uint8_t kParameterBytes = 0x19;
constexpr uint8_t kSized = 4;

struct Section {
  uint32_t name;
  uint32_t type;
  uint64_t flags, address, offset, size;
  uint32_t link, info;
  uint64_t alignment, entry;
};
static_assert(sizeof(Section) == 64);

[[noreturn]] void refuse(const char* why) {
  throw Error(Code::kIntegrity, "a cubin is damaged", why, "rebuild the artifact: vcc compile");
}

std::span<const uint8_t> part(std::span<const uint8_t> all, uint64_t offset, uint64_t size) {
  if (offset > all.size() || size > all.size() - offset) refuse("a section lies outside the file");
  return all.subspan(offset, size);
}

template <class T>
T read(std::span<const uint8_t> all, uint64_t offset) {
  T value;
  std::memcpy(&value, part(all, offset, sizeof value).data(), sizeof value);
  return value;
}

std::string_view name_of(std::span<const uint8_t> strings, uint32_t start) {
  if (start >= strings.size()) refuse("a section has no name");
  const char* first = reinterpret_cast<const char*>(strings.data()) + start;
  const void* end = std::memchr(first, 0, strings.size() - start);
  if (end == nullptr) refuse("a section's name does not end");
  return {first, static_cast<size_t>(static_cast<const char*>(end) - first)};
}

std::optional<uint32_t> declared(std::span<const uint8_t> info) {
  for (uint64_t at = 0; at + 4 <= info.size();) {
    const uint8_t form = info[at], attribute = info[at + 1];
    const auto value = read<uint16_t>(info, at + 2);
    if (attribute == kParameterBytes && form != kSized) return value;
    at += 4 + (form == kSized ? value : 0);
  }
  return std::nullopt;
}

}  // namespace

std::map<std::string, uint32_t, std::less<>> cubin_parameters(std::span<const uint8_t> cubin) {
  constexpr uint8_t kMagic[5] = {0x7f, 'E', 'L', 'F', 2};  // 64 bits
  if (cubin.size() < 64 || std::memcmp(cubin.data(), kMagic, sizeof kMagic) != 0) {
    refuse("it is not a 64-bit ELF file");
  }
  const auto table = read<uint64_t>(cubin, 0x28);
  const auto width = read<uint16_t>(cubin, 0x3a), count = read<uint16_t>(cubin, 0x3c);
  const auto names = read<uint16_t>(cubin, 0x3e);
  if (width != sizeof(Section) || names >= count) refuse("its section table is not valid");
  const auto headers = part(cubin, table, uint64_t{count} * sizeof(Section));
  const auto section = [&](uint32_t index) { return read<Section>(headers, index * 64ull); };
  const auto strings = part(cubin, section(names).offset, section(names).size);
  std::map<std::string, uint32_t, std::less<>> found;
  for (uint32_t index = 1; index < count; ++index) {
    const Section one = section(index);
    const auto name = name_of(strings, one.name);
    if (!name.starts_with(kInfo)) continue;
    // A kernel without parameters has no such entry.
    const auto bytes = declared(part(cubin, one.offset, one.size)).value_or(0);
    found.emplace(name.substr(kInfo.size()), bytes);
  }
  return found;
}

}  // namespace vcc
