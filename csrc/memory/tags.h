// What sleeping and waking mean for a tag.
#pragma once

#include <string_view>

namespace vcc {

struct TagPolicy {
  std::string_view name;
  bool kept1, kept2;  // contents survive a sleep of level 1, of level 2
  bool deferrable;    // stays asleep when other tags are woken by name

  bool kept_at(int level) const { return level == 1 ? kept1 : kept2; }
};

inline constexpr TagPolicy kTagPolicies[] = {
    {"weights", true, false, true},     {"kv_cache", false, false, true},
    {"workspace", false, false, false}, {"scratch", false, false, false},
    {"buffers", true, true, false},     {"io", true, true, false},
    {"default", true, false, false},  // memory that was given no tag
};

// A tag of the user's own: as weights.
inline constexpr TagPolicy kOwnTag = {"", true, false, true};

inline const TagPolicy& policy_of(std::string_view name) {
  for (const TagPolicy& policy : kTagPolicies) {
    if (policy.name == name) return policy;
  }
  return kOwnTag;
}

}  // namespace vcc
