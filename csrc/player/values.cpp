#include "player/values.h"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "abi/error.h"
#include "player/weights_convert.h"

namespace vcc {
namespace {

// What one thread takes at least, and how many there are at most: more do not read faster.
constexpr uint64_t kShare = uint64_t{1} << 19;
constexpr uint64_t kThreads = 4;

}  // namespace

uint64_t value_bytes(uint16_t dtype) {
  VCC_EXPECT(dtype < weights::kDtypes, "a dtype");
  return weights::kElementBytes[dtype];
}

void move_values(const Values& from, const Values& to, uint64_t count) {
  const uint64_t wide = value_bytes(from.dtype), narrow = value_bytes(to.dtype);
  const weights::Convert convert = weights::conversion(from.dtype, to.dtype);
  VCC_EXPECT(convert != nullptr, "a dtype that is made of the other");
  const uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const uint64_t shares = std::clamp<uint64_t>(count * wide / kShare, 1, std::min(cores, kThreads));
  const auto part = [&](uint64_t share) {
    const uint64_t first = count * share / shares, last = count * (share + 1) / shares;
    convert(from.data + first * wide, to.data + first * narrow, last - first, 1);
  };
  std::vector<std::jthread> others;
  for (uint64_t share = 1; share < shares; ++share) others.emplace_back(part, share);
  part(0);
}

}  // namespace vcc
