#pragma once

#include <string_view>
#include <vector>

namespace awkward {

class Run;

/// One awkward thing a trainer may do. The body may throw; the program then fails.
struct Case {
  std::string_view name;
  std::string_view protects;  ///< What would be wrong if this case differed.
  void (*body)(Run&);
};

/// All cases of the program, in the order in which their units were linked.
std::vector<Case>& cases();

struct Registration {
  explicit Registration(const Case& entry) { cases().push_back(entry); }
};

}  // namespace awkward

/// Defines and registers a case. CMakeLists.txt finds the cases by this word at the start of a line
/// and makes one test of each, so the name stays on the same line.
#define SPILLWAY_AWKWARD_CASE(name, protects)                                             \
  static void case_##name(::awkward::Run& run);                                           \
  static const ::awkward::Registration registered_##name{{#name, protects, case_##name}}; \
  static void case_##name(::awkward::Run& run)
