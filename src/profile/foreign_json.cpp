#include "foreign_json.h"

#include <algorithm>
#include <set>

#include "spillway/base/error.h"

namespace spillway::profile {
namespace {

using nlohmann::json;

constexpr std::size_t kMostShown = 40;

/// What a value looks like in an error: not more of it than fits on a line.
std::string shown(const json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= kMostShown ? text : text.substr(0, kMostShown) + "...";
}

/// "[json.exception.parse_error.101] parse error at line 1, ..." without the brackets, and without
/// bytes of the text that are none.
std::string reason_in(std::string_view what) {
  const auto end = what.find("] ");
  std::string reason(end == std::string_view::npos ? what : what.substr(end + 2));
  for (char& letter : reason)
    if (letter < ' ' || letter > '~') letter = '?';
  return reason;
}

}  // namespace

json parse_json(std::string_view text, const std::string& name, int max_depth) {
  std::vector<std::set<std::string>> keys;
  const auto look = [&](int depth, json::parse_event_t event, const json& parsed) {
    if (depth > max_depth)
      throw ConfigError("{}: more than {} levels of lists and objects", name, max_depth);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key &&
        !keys.back().insert(parsed.get_ref<const std::string&>()).second)
      throw ConfigError("{}: the key {} comes twice", name, shown(parsed));
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), look);
  } catch (const json::exception& error) {
    throw ConfigError("{}: not JSON, or not all of it: {}", name, reason_in(error.what()));
  }
}

JsonObject::JsonObject(const json& value, std::string file, std::string path)
    : json_(value), file_(std::move(file)), path_(std::move(path)) {
  if (json_.is_object()) return;
  throw ConfigError("{}: {} is {} instead of an object", file_, path_.empty() ? "the text" : path_,
                    shown(json_));
}

std::string JsonObject::place(const std::string& key) const {
  return file_ + ": " + (path_.empty() ? "" : path_ + ".") + key;
}

const json& JsonObject::at(const std::string& key) {
  asked_.push_back(key);
  const auto found = json_.find(key);
  if (found == json_.end()) throw ConfigError("{} is missing", place(key));
  return *found;
}

std::string JsonObject::key_list() const {
  std::string list;
  for (const auto& [key, value] : json_.items())
    if (list.size() < kMostShown) list += (list.empty() ? "" : ", ") + key;
  return list;
}

JsonObject JsonObject::object(const std::string& key) {
  return {at(key), file_, path_.empty() ? key : path_ + "." + key};
}

std::vector<JsonObject> JsonObject::objects(const std::string& key) {
  std::vector<JsonObject> all;
  for (const json& each : list(key, kAnySize)) {
    const std::string path = (path_.empty() ? "" : path_ + ".") + key;
    all.push_back({each, file_, path + "[" + std::to_string(all.size()) + "]"});
  }
  return all;
}

std::string JsonObject::text(const std::string& key) {
  const json& value = at(key);
  if (!value.is_string()) throw ConfigError("{} is {} instead of text", place(key), shown(value));
  return value.get<std::string>();
}

std::uint64_t JsonObject::count(const std::string& key, std::uint64_t least, std::uint64_t most) {
  const json& value = at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least ||
      value.get<std::uint64_t>() > most)
    throw ConfigError("{} is {} instead of a whole number from {} to {}", place(key), shown(value),
                      least, most);
  return value.get<std::uint64_t>();
}

double JsonObject::number(const std::string& key, double least, double most) {
  const json& value = at(key);
  const bool fits =
      value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
  if (!fits)
    throw ConfigError("{} is {} instead of a number from {} to {}", place(key), shown(value), least,
                      most);
  return value.get<double>();
}

const json& JsonObject::list(const std::string& key, std::size_t size) {
  const json& value = at(key);
  if (!value.is_array()) throw ConfigError("{} is {} instead of a list", place(key), shown(value));
  if (size != kAnySize && value.size() != size)
    throw ConfigError("{} has {} entries instead of {}", place(key), value.size(), size);
  return value;
}

std::int64_t JsonObject::whole(const json& value, const std::string& key, std::size_t index,
                               std::int64_t least, std::int64_t most) const {
  // A number beyond int64 would wrap around on its way out of the tree.
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() &&
                      value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) &&
                    value.get<std::int64_t>() >= least && value.get<std::int64_t>() <= most;
  if (!fits)
    throw ConfigError("{}[{}] is {} instead of a whole number from {} to {}", place(key), index,
                      shown(value), least, most);
  return value.get<std::int64_t>();
}

std::vector<std::string> JsonObject::texts(const std::string& key, std::size_t size) {
  std::vector<std::string> values;
  for (const json& each : list(key, size)) {
    if (!each.is_string())
      throw ConfigError("{}[{}] is {} instead of text", place(key), values.size(), shown(each));
    values.push_back(each.get<std::string>());
  }
  return values;
}

std::vector<std::pair<std::string, std::string>> JsonObject::all_texts() {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [key, value] : json_.items()) all.emplace_back(key, text(key));
  return all;
}

void JsonObject::refuse_others() const {
  for (const auto& [key, value] : json_.items()) {
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end())
      throw ConfigError("{} is no key of this format", place(shown(json(key))));
  }
}

}  // namespace spillway::profile
