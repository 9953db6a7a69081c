#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/base/named_values.h"
#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

/// The setting that an option ("--budget") stands for, or null.
const runtime::SettingInfo* setting_behind(const std::string& option);

/// Throws ConfigError for an option that takes `value` ("SIZE|PERCENT%") and lacks it: `next` is
/// the word after it, or null. A value that begins with two dashes is written behind "=".
void require_value(const std::string& option, std::string_view value, const std::string* next);

inline constexpr std::uint32_t kMostCount = 1'000'000;

/// The words of a list, between commas; a word may be empty.
std::vector<std::string> comma_separated(std::string_view list);

/// All of a text as a number.
std::optional<double> number_in(const std::string& text);

/// The values that an option takes: what the help calls them, and how a text becomes one. `read`
/// throws ConfigError that names the option and the text.
template <typename Value>
struct ValueKind {
  std::string type;  ///< "COUNT", "quick|tight"
  std::function<Value(const std::string& option, const std::string& text)> read;
  std::vector<std::string> names{};  ///< What shells offer for NAME in `type`.
};

/// The names in a list of what has names.
template <typename List>
std::vector<std::string> names_of(const List& list) {
  std::vector<std::string> names;
  for (const auto& each : list) names.emplace_back(each.name);
  return names;
}

/// The same with the summary of each.
template <typename List>
runtime::NamedTexts meanings_of(const List& list) {
  runtime::NamedTexts meanings;
  for (const auto& each : list) meanings.emplace_back(each.name, each.summary);
  return meanings;
}

/// Whole numbers within limits.
ValueKind<std::uint32_t> counts(std::uint32_t least = 1, std::uint32_t most = kMostCount);
ValueKind<double> numbers(const std::string& type, double least, double most);
ValueKind<Bytes> sizes();
/// In GB/s; the value is in bytes per second.
ValueKind<TransferRate> rates();

/// Values of this kind between commas.
template <typename Value>
ValueKind<std::vector<Value>> lists_of(const ValueKind<Value>& kind) {
  return {kind.type + ",...", [kind](const std::string& option, const std::string& text) {
            std::vector<Value> values;
            for (const std::string& word : comma_separated(text))
              values.push_back(kind.read(option, word));
            return values;
          }};
}

/// The value of a name in a list of `Named`.
template <typename List>
auto one_of(const List& list) {
  using Value = std::remove_cvref_t<decltype(list.front().value)>;
  const auto read = [list](const std::string& option, const std::string& text) {
    return value_named(text, list, "value of " + option);
  };
  return ValueKind<Value>{alternatives(list), read};
}

}  // namespace spillway::cli
