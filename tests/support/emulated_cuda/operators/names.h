#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace spillway::emulated {

template <std::size_t count>
bool holds(const std::array<std::string_view, count>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <std::size_t count>
bool begins_with_one(const std::array<std::string_view, count>& prefixes, std::string_view name) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
    return name.substr(0, prefix.size()) == prefix;
  });
}

}  // namespace spillway::emulated
