#include "spillway/base/json_reader.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::size_t kHexadecimalDigits = 16;

const json& tree_at(const void* value) { return *static_cast<const json*>(value); }

/// What a value looks like in an error.
std::string shown(const json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  return shown_text(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

/// Of "[json.exception.parse_error.101] parse error at line 1, column 2: ..." the place: behind it
/// the library tells of its own states.
std::string reason_in(std::string_view what) {
  constexpr std::size_t kMostLetters = 160;
  if (const auto end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
  if (what.starts_with("parse error at ")) what = what.substr(0, what.find(": "));
  return shown_text(what, kMostLetters);
}

/// Commands with the name of a file in place of FILE.
std::string with_file(std::string_view commands, const std::string& file) {
  constexpr std::string_view kFile = " FILE";
  std::string text;
  for (auto at = commands.find(kFile); at != std::string_view::npos; at = commands.find(kFile)) {
    text += message("{} {}", commands.substr(0, at), file);
    commands.remove_prefix(at + kFile.size());
  }
  return text.append(commands);
}

/// Refuses what a tree of the text would not show any more, or be too deep for. A pass of its own:
/// where the library calls back while it builds the tree, it looks through all elements of a list
/// at the end of each object in it.
class TextCheck : public nlohmann::json_sax<json> {
 public:
  TextCheck(const std::string& name, int max_depth) : name_(name), max_depth_(max_depth) {}

  const std::string& problem() const { return problem_; }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(std::int64_t /*value*/) override { return true; }
  bool number_unsigned(std::uint64_t /*value*/) override { return true; }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return true; }
  bool string(std::string& /*value*/) override { return true; }
  bool binary(json::binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*elements*/) override {
    keys_.emplace_back();
    return enter();
  }
  bool key(std::string& key) override {
    if (keys_.back().count(key) != 0)
      throw ConfigError("{}: the key {} comes twice", name_, shown(key));
    keys_.back().insert(std::move(key));
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return leave();
  }
  bool start_array(std::size_t /*elements*/) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const json::exception& error) override {
    problem_ = reason_in(error.what());
    return false;
  }

 private:
  bool enter() {
    if (++depth_ > max_depth_)
      throw ConfigError("{}: more than {} levels of lists and objects", name_, max_depth_);
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  const std::string& name_;
  const int max_depth_;
  int depth_ = 0;
  std::vector<std::set<std::string>> keys_;  ///< Of each open object.
  std::string problem_;
};

json parsed(std::string_view text, const std::string& name, int max_depth) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    throw ConfigError("{}: it is empty", name);
  try {
    TextCheck check(name, max_depth);
    if (!json::sax_parse(text.begin(), text.end(), &check))
      throw ConfigError("{}: not JSON, or not all of it: {}", name, check.problem());
    return json::parse(text.begin(), text.end());
  } catch (const json::exception& error) {
    throw ConfigError("{}: not JSON, or not all of it: {}", name, reason_in(error.what()));
  }
}

const json& member(const json& tree, const JsonObject& object, const std::string& key) {
  const auto found = tree.find(key);
  if (found == tree.end()) throw ConfigError("{} is missing", object.place(key));
  return *found;
}

const json& list_in(const json& tree, const JsonObject& object, const std::string& key,
                    std::size_t size) {
  const json& value = member(tree, object, key);
  if (!value.is_array())
    throw ConfigError("{} is {} instead of a list", object.place(key), shown(value));
  if (size != JsonObject::kAnySize && value.size() != size)
    throw ConfigError("{} has {} entries instead of {}", object.place(key), value.size(), size);
  return value;
}

[[noreturn]] void refuse_controls(const std::string& text, const std::string& place) {
  throw ConfigError("{} is '{}', with control characters in it", place, shown_text(text));
}

std::uint64_t from_hexadecimal(const std::string& text, const std::string& place) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value, 16);
  if (status != std::errc() || stop != end || text.size() != kHexadecimalDigits)
    throw ConfigError("{} is no number of {} hexadecimal digits", place, kHexadecimalDigits);
  return value;
}

}  // namespace

struct JsonText::Tree {
  json root;
};

JsonText::JsonText(std::string_view text, std::string name, int max_depth)
    : tree_(std::make_unique<Tree>(Tree{parsed(text, name, max_depth)})),
      name_(std::make_shared<const std::string>(std::move(name))) {}

JsonText::~JsonText() = default;
JsonText::JsonText(JsonText&&) noexcept = default;
JsonText& JsonText::operator=(JsonText&&) noexcept = default;

JsonObject JsonText::root() const { return {&tree_->root, name_, ""}; }

JsonObject::JsonObject(const void* value, std::shared_ptr<const std::string> file, std::string path)
    : value_(value), file_(std::move(file)), path_(std::move(path)) {
  if (tree_at(value_).is_object()) return;
  throw ConfigError("{}: {} is {} instead of an object", *file_, path_.empty() ? "the text" : path_,
                    shown(tree_at(value_)));
}

std::string JsonObject::place(const std::string& key) const {
  return *file_ + ": " + (path_.empty() ? "" : path_ + ".") + shown_text(key);
}

bool JsonObject::has(std::string_view key) const { return tree_at(value_).contains(key); }

std::string JsonObject::key_list() const {
  constexpr std::size_t kMostListed = 40;
  std::string list;
  for (const auto& [key, value] : tree_at(value_).items())
    if (list.size() < kMostListed) list += (list.empty() ? "" : ", ") + shown_text(key);
  return list;
}

JsonObject JsonObject::object(const std::string& key) {
  asked_.push_back(key);
  return {&member(tree_at(value_), *this, key), file_, path_.empty() ? key : path_ + "." + key};
}

std::vector<JsonObject> JsonObject::objects(const std::string& key) {
  asked_.push_back(key);
  const std::string path = (path_.empty() ? "" : path_ + ".") + key;
  std::vector<JsonObject> all;
  for (const json& each : list_in(tree_at(value_), *this, key, kAnySize))
    all.push_back({&each, file_, path + "[" + std::to_string(all.size()) + "]"});
  return all;
}

std::string JsonObject::text(const std::string& key) {
  std::string value = any_text(key);
  if (has_control_characters(value)) refuse_controls(value, place(key));
  return value;
}

std::string JsonObject::any_text(const std::string& key) {
  asked_.push_back(key);
  const json& value = member(tree_at(value_), *this, key);
  if (!value.is_string()) throw ConfigError("{} is {} instead of text", place(key), shown(value));
  return value.get<std::string>();
}

std::uint64_t JsonObject::count(const std::string& key, std::uint64_t least, std::uint64_t most) {
  asked_.push_back(key);
  const json& value = member(tree_at(value_), *this, key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least ||
      value.get<std::uint64_t>() > most)
    throw ConfigError("{} is {} instead of a whole number from {} to {}", place(key), shown(value),
                      least, most);
  return value.get<std::uint64_t>();
}

double JsonObject::number(const std::string& key, double least, double most) {
  asked_.push_back(key);
  const json& value = member(tree_at(value_), *this, key);
  const bool fits =
      value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
  if (!fits)
    throw ConfigError("{} is {} instead of a number from {} to {}", place(key), shown(value), least,
                      most);
  return value.get<double>();
}

std::uint64_t JsonObject::hexadecimal(const std::string& key) {
  return from_hexadecimal(text(key), place(key));
}

std::vector<std::int64_t> JsonObject::whole_numbers(const std::string& key, std::size_t size,
                                                    std::int64_t least, std::int64_t most) {
  asked_.push_back(key);
  const json& list = list_in(tree_at(value_), *this, key, size);
  std::vector<std::int64_t> values;
  values.reserve(list.size());
  for (const json& value : list) {
    // A number beyond int64 would wrap around on its way out of the tree.
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() &&
                        value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) &&
                      value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most;
    if (!fits)
      throw ConfigError("{}[{}] is {} instead of a whole number from {} to {}", place(key),
                        values.size(), shown(value), least, most);
    values.push_back(value.get<std::int64_t>());
  }
  return values;
}

std::vector<std::string> JsonObject::texts(const std::string& key, std::size_t size) {
  asked_.push_back(key);
  std::vector<std::string> values;
  for (const json& each : list_in(tree_at(value_), *this, key, size)) {
    if (!each.is_string())
      throw ConfigError("{}[{}] is {} instead of text", place(key), values.size(), shown(each));
    values.push_back(each.get<std::string>());
    if (has_control_characters(values.back()))
      refuse_controls(values.back(), message("{}[{}]", place(key), values.size() - 1));
  }
  return values;
}

std::vector<std::uint64_t> JsonObject::hexadecimals(const std::string& key, std::size_t size) {
  std::vector<std::uint64_t> values;
  for (const std::string& each : texts(key, size))
    values.push_back(from_hexadecimal(each, message("{}[{}]", place(key), values.size())));
  return values;
}

std::vector<std::pair<std::string, std::string>> JsonObject::all_texts() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [key, value] : tree_at(value_).items()) {
    if (has_control_characters(key)) refuse_controls(key, place(key));
    all.emplace_back(key, value.is_number() ? value.dump() : text(key));
  }
  return all;
}

void JsonObject::require_format(const FileFormat& wanted) {
  const std::string own = has("format") ? text("format") : "";
  if (own == wanted.name) return;
  const std::string source = message("{} comes from: {}", wanted.meaning, wanted.made_by);
  if (!has("format"))
    throw ConfigError("{}: it has no format, so it is not {} ({}; {})", *file_, wanted.meaning,
                      key_list().empty() ? "it is empty" : "it has: " + key_list(), source);
  for (const FileFormat& known : kFileFormats)
    if (own == known.name)
      throw ConfigError("{} is {}, not {} (read it with: {}; {})", *file_, known.meaning,
                        wanted.meaning, with_file(known.read_by, shell_word(*file_)), source);
  throw ConfigError("{}: its format is '{}', not '{}' ({})", *file_, shown_text(own), wanted.name,
                    source);
}

void JsonObject::refuse_others() const {
  for (const auto& [key, value] : tree_at(value_).items()) {
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end())
      throw ConfigError("{} is no key of this format", place(shown(json(key))));
  }
}

std::string JsonObject::compact_without(std::string_view key) const {
  json copy = json::object();
  for (const auto& [name, value] : tree_at(value_).items())
    if (name != key) copy[name] = value;
  return copy.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string hexadecimal_text(std::uint64_t number) {
  std::string text(kHexadecimalDigits, '0');
  for (std::size_t i = text.size(); i-- > 0; number >>= 4U)
    text[i] = "0123456789abcdef"[number & 15U];
  return text;
}

}  // namespace spillway
