#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

namespace spillway {

using Keys = std::set<std::string>;

/// Words that stand in a text as keys do: `needed_bytes`.
inline Keys keys_in(const std::string& text) {
  static const std::regex kKey("`([a-z_]+)`");
  Keys keys;
  for (std::sregex_iterator each(text.begin(), text.end(), kKey), end; each != end; ++each)
    keys.insert((*each)[1]);
  return keys;
}

/// What a page says of a key.
struct KeyMeaning {
  bool is_of_plan = false;  ///< Marked *: missing where there is no plan.
  std::string text;
};

/// The keys in the first column of the tables behind a heading of a page and before the next one;
/// of the page's beginning without a heading.
inline std::map<std::string, KeyMeaning> documented(const char* path,
                                                    const std::string& heading = {}) {
  std::ifstream page(path);
  std::map<std::string, KeyMeaning> meanings;
  bool is_there = heading.empty();
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) is_there = line == "## " + heading;
    if (!is_there || !line.starts_with("| `")) continue;
    const std::size_t middle = line.find(" | ");
    const std::string first = line.substr(0, middle);
    for (const std::string& key : keys_in(first)) {
      const KeyMeaning meaning{first.ends_with(" *"), line.substr(middle + 3)};
      EXPECT_TRUE(meanings.emplace(key, meaning).second) << key << " stands there twice";
    }
  }
  EXPECT_FALSE(meanings.empty()) << path << ", " << heading;
  return meanings;
}

inline Keys keys_of(const nlohmann::json& object) {
  Keys keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

/// The keys of all objects within, however deep.
inline Keys keys_within(const nlohmann::json& value) {
  Keys keys = value.is_object() ? keys_of(value) : Keys();
  for (const nlohmann::json& each : value)
    if (each.is_structured()) keys.merge(keys_within(each));
  return keys;
}

}  // namespace spillway
