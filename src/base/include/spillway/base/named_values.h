#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/nearest_name.h"

namespace spillway {

/// A value and what users call it. One list of these serves reading, help texts and errors.
template <typename Value>
struct Named {
  std::string_view name;
  Value value;
};

/// "auto|posix|ram": what may be written, as help texts show it.
template <typename List>
std::string alternatives(const List& list) {
  std::string text;
  for (const auto& each : list) text.append(text.empty() ? "" : "|").append(each.name);
  return text;
}

/// The value called `name`. Throws ConfigError "unknown KIND 'NAME'" with the nearest name, or with
/// all of them.
template <typename List>
auto value_named(std::string_view name, const List& list, std::string_view kind) {
  std::vector<std::string_view> names;
  for (const auto& each : list) {
    if (each.name == name) return each.value;
    names.push_back(each.name);
  }
  throw ConfigError("unknown {} '{}'{}", kind, name, hint_for(name, names));
}

/// Name of a value; "unknown" for one that the list lacks.
template <typename List, typename Value>
std::string_view name_in(const List& list, Value value) {
  for (const auto& each : list)
    if (each.value == value) return each.name;
  return "unknown";
}

}  // namespace spillway
