#include "replicated_operators.h"

#include <fnmatch.h>

#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"

namespace spillway::split {

ReplicatedOperators::ReplicatedOperators(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) patterns_.push_back({pattern});
}

bool ReplicatedOperators::note(std::string_view name, bool has_parameter) {
  if (patterns_.empty()) return false;
  const auto found = known_.find(name);
  if (found != known_.end() && (found->second.has_parameter || !has_parameter))
    return found->second.is_replicated;
  Known& known = known_[name];
  known = {matches(name, has_parameter), has_parameter};
  return known.is_replicated;
}

bool ReplicatedOperators::matches(std::string_view name, bool has_parameter) {
  const std::string whole(name);
  const auto colons = whole.rfind("::");
  const std::string own = colons == std::string::npos ? whole : whole.substr(colons + 2);
  bool matches = false;
  for (Pattern& pattern : patterns_) {
    if (::fnmatch(pattern.text.c_str(), whole.c_str(), 0) != 0 &&
        ::fnmatch(pattern.text.c_str(), own.c_str(), 0) != 0)
      continue;
    matches = true;
    pattern.has_matched |= has_parameter;
  }
  return matches;
}

std::vector<std::string> ReplicatedOperators::unmatched() const {
  std::vector<std::string> names;
  for (const auto& [name, known] : known_)
    if (known.has_parameter) names.emplace_back(name);
  std::sort(names.begin(), names.end());
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  std::vector<std::string> told;
  for (const Pattern& pattern : patterns_)
    if (!pattern.has_matched)
      told.push_back(message("--replicate {}: no operator with parameters has that name in the "
                             "first step (those that have any: {})",
                             pattern.text, list.empty() ? "none" : list));
  return told;
}

}  // namespace spillway::split
