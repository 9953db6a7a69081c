#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace spillway::phantoms {

inline bool is_any(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether an operator counts from the begin of its first argument's storage, or keeps what it does
/// not show.
inline bool sees_offsets(std::string_view name) {
  const auto starts = [name](std::string_view start) { return name.starts_with(start); };
  return starts("aten::as_strided") || starts("aten::slice_scatter") ||
         starts("aten::select_scatter") || starts("aten::diagonal_scatter");
}

/// Whether an operator fills its first argument with random numbers, as many as that has elements.
inline bool fills_by_draws(std::string_view name, std::string_view overload) {
  return is_any(name, {"aten::uniform_", "aten::normal_", "aten::random_", "aten::exponential_",
                       "aten::log_normal_", "aten::cauchy_", "aten::geometric_"}) ||
         (name == "aten::bernoulli_" && overload == "float");
}

}  // namespace spillway::phantoms
