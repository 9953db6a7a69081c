#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace spillway::split {

/// Operators whose parameters all ranks keep (`--replicate`), by patterns of the shell for their
/// names, with or without what stands before the last "::". One thread.
class ReplicatedOperators {
 public:
  explicit ReplicatedOperators(const std::vector<std::string>& patterns);

  /// An operator of forward, whose name stays; `has_parameter`: one of its inputs is one.
  bool note(std::string_view name, bool has_parameter);
  bool are_none() const { return patterns_.empty(); }
  /// Patterns that no operator with a parameter had, each with those that there were, as sentences.
  std::vector<std::string> unmatched() const;

 private:
  struct Pattern {
    std::string text;
    bool has_matched = false;
  };

  bool matches(std::string_view name, bool has_parameter);

  std::vector<Pattern> patterns_;
  struct Known {
    bool is_replicated = false;
    bool has_parameter = false;
  };
  std::unordered_map<std::string_view, Known> known_;  ///< By name.
};

}  // namespace spillway::split
