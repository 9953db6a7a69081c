#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/base/file_format.h"

namespace spillway {

/// One object of a JSON text of foreign origin. What is asked for and missing, of another type or
/// out of range throws ConfigError that begins with the file's name and the place of the value, one
/// line whatever the text holds. Refers to the `JsonText` that it came from.
class JsonObject {
 public:
  /// Of lists that may have any number of entries.
  static constexpr std::size_t kAnySize = static_cast<std::size_t>(-1);

  bool has(std::string_view key) const;
  std::string key_list() const;  ///< "a, b": the first ones.
  JsonObject object(const std::string& key);
  /// All objects of a list.
  std::vector<JsonObject> objects(const std::string& key);
  /// Text that a terminal may be shown: control characters are refused, here and in lists.
  std::string text(const std::string& key);
  std::string any_text(const std::string& key);  ///< With these, as paths may have them.
  std::uint64_t count(const std::string& key, std::uint64_t least, std::uint64_t most);
  /// NaN and infinity are no JSON.
  double number(const std::string& key, double least, double most);
  /// A number of 64 bits as sixteen digits: see `hexadecimal_text`.
  std::uint64_t hexadecimal(const std::string& key);
  std::vector<std::string> texts(const std::string& key, std::size_t size);
  std::vector<std::uint64_t> hexadecimals(const std::string& key, std::size_t size);
  /// Every key of this object with its text, or its number as text.
  std::vector<std::pair<std::string, std::string>> all_texts();

  /// A list of `size` whole numbers from `least` to `most`. Where -1 is allowed and the numbers are
  /// unsigned, it becomes the largest one.
  template <typename Integer>
  std::vector<Integer> counts(const std::string& key, std::size_t size, std::int64_t least,
                              std::int64_t most) {
    std::vector<Integer> values;
    for (const std::int64_t each : whole_numbers(key, size, least, most))
      values.push_back(static_cast<Integer>(each));
    return values;
  }

  /// Throws unless the key `format` says just that: with what the file is, and what reads it.
  void require_format(const FileFormat& wanted);

  /// Throws for the first key that nobody has asked for.
  void refuse_others() const;

  /// "FILE: PLACE.KEY": how errors about it begin.
  std::string place(const std::string& key) const;

  /// This object in one line, keys sorted, without one of them: equal for another layout.
  std::string compact_without(std::string_view key) const;

 private:
  friend class JsonText;
  JsonObject(const void* value, std::shared_ptr<const std::string> file, std::string path);
  std::vector<std::int64_t> whole_numbers(const std::string& key, std::size_t size,
                                          std::int64_t least, std::int64_t most);

  const void* value_;  ///< A tree of the JSON library, which no public header shows.
  std::shared_ptr<const std::string> file_;
  std::string path_;  ///< Where the object stands: "ops"; empty for the root.
  std::vector<std::string> asked_;
};

/// A JSON text as a whole, read in time and memory that grow linearly with it.
class JsonText {
 public:
  /// Beyond all formats of ours: a file of another one is known by its format, not by its depth.
  static constexpr int kAnyFormat = 16;

  /// Throws ConfigError that begins with `name` for text that is no JSON, for a key that comes
  /// twice in one object, for more than `max_depth` levels of lists and objects.
  JsonText(std::string_view text, std::string name, int max_depth);
  ~JsonText();
  JsonText(JsonText&&) noexcept;
  JsonText& operator=(JsonText&&) noexcept;

  /// Throws ConfigError for a text that is a list, a number, or something else.
  JsonObject root() const;

 private:
  struct Tree;
  std::unique_ptr<Tree> tree_;
  std::shared_ptr<const std::string> name_;
};

/// Sixteen digits. Readers of JSON keep whole numbers exact up to 2^53 only.
std::string hexadecimal_text(std::uint64_t number);

}  // namespace spillway
