#include "foreign_json.h"

#include <algorithm>
#include <set>

#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"

namespace spillway::profile {
namespace {

using nlohmann::json;

/// What a value looks like in an error.
std::string shown(const json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  return shown_text(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

/// "[json.exception.parse_error.101] parse error at line 1, ..." without the brackets.
std::string reason_in(std::string_view what) {
  constexpr std::size_t kMostLetters = 160;
  const auto end = what.find("] ");
  return shown_text(end == std::string_view::npos ? what : what.substr(end + 2), kMostLetters);
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

}  // namespace

json parse_json(std::string_view text, const std::string& name, int max_depth) {
  try {
    TextCheck check(name, max_depth);
    if (!json::sax_parse(text.begin(), text.end(), &check))
      throw ConfigError("{}: not JSON, or not all of it: {}", name, check.problem());
    return json::parse(text.begin(), text.end());
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
  return file_ + ": " + (path_.empty() ? "" : path_ + ".") + shown_text(key);
}

const json& JsonObject::at(const std::string& key) {
  asked_.push_back(key);
  const auto found = json_.find(key);
  if (found == json_.end()) throw ConfigError("{} is missing", place(key));
  return *found;
}

std::string JsonObject::key_list() const {
  constexpr std::size_t kMostListed = 40;
  std::string list;
  for (const auto& [key, value] : json_.items())
    if (list.size() < kMostListed) list += (list.empty() ? "" : ", ") + shown_text(key);
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
