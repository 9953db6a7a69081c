#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway::profile {

/// Parses JSON of foreign origin into a tree. Throws ConfigError that begins with `name`: for text
/// that is no JSON, for a key that comes twice in one object, for more than `max_depth` levels.
nlohmann::json parse_json(std::string_view text, const std::string& name, int max_depth);

/// One object of a JSON file. What is asked for and missing, of another type or out of range throws
/// ConfigError with the file's name and the place of the value. Refers to the tree.
class JsonObject {
 public:
  static constexpr std::size_t kAnySize = static_cast<std::size_t>(-1);

  /// `path` is where the object stands: "ops"; empty for the root.
  JsonObject(const nlohmann::json& json, std::string file, std::string path);

  bool has(const std::string& key) const { return json_.contains(key); }
  std::string key_list() const;  ///< "a, b"
  JsonObject object(const std::string& key);
  /// All objects of a list.
  std::vector<JsonObject> objects(const std::string& key);
  std::string text(const std::string& key);
  std::uint64_t count(const std::string& key, std::uint64_t least, std::uint64_t most);
  double number(const std::string& key, double least, double most);
  std::vector<std::string> texts(const std::string& key, std::size_t size);
  /// Every key of this object with its text.
  std::vector<std::pair<std::string, std::string>> all_texts();

  /// A list of `size` whole numbers from `least` to `most`.
  template <typename Integer>
  std::vector<Integer> counts(const std::string& key, std::size_t size, std::int64_t least,
                              std::int64_t most) {
    const nlohmann::json& all = list(key, size);
    std::vector<Integer> values;
    values.reserve(all.size());
    for (const auto& each : all)
      values.push_back(static_cast<Integer>(whole(each, key, values.size(), least, most)));
    return values;
  }

  /// Throws for the first key that nobody has asked for.
  void refuse_others() const;

  /// "FILE: PLACE.KEY": how errors about it begin.
  std::string place(const std::string& key) const;

 private:
  const nlohmann::json& at(const std::string& key);
  const nlohmann::json& list(const std::string& key, std::size_t size);
  std::int64_t whole(const nlohmann::json& value, const std::string& key, std::size_t index,
                     std::int64_t least, std::int64_t most) const;

  const nlohmann::json& json_;
  std::string file_;
  std::string path_;
  std::vector<std::string> asked_;
};

}  // namespace spillway::profile
