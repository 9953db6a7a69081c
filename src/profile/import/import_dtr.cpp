#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/import/trace_import.h"
#include "trace_builder.h"
#include "trace_lines.h"

namespace spillway::profile {
namespace {

// Times in ns and sizes in bytes.
constexpr std::uint64_t kMostNumber = std::uint64_t{1} << 60;

/// Replays a log: names refer to storages, several may refer to one, and a storage lives as long as
/// a name refers to it.
class DtrReplay {
 public:
  DtrReplay(std::string_view text, const std::string& file)
      : text_(text), file_(file), lines_(text, file) {}

  StepProfile replay() {
    skip_to_start();
    while (const auto text = next_record()) {
      JsonObject record = text->root();
      step(record, record.text("INSTRUCTION"));
    }
    if (!builder_.has_ops()) throw ConfigError("{}: the log holds no operator", file_);
    for (const Storage& storage : storages_) {
      if (storage.names > 0 && !storage.is_constant)
        builder_.set_class(storage.value, StorageClass::kGradient);
    }
    ProfileOrigin origin;
    origin.source = "dtr";
    origin.program = file_;
    origin.steps = 1;
    return builder_.finish(std::move(origin));
  }

 private:
  struct Storage {
    TraceBuilder::Value value = 0;
    std::uint32_t names = 0;  ///< That refer to it.
    bool is_constant = false;
  };
  struct Name {
    std::size_t storage = 0;
    std::size_t released_at = 0;  ///< Line; 0: not yet.
  };

  /// The step begins behind START; logs without one are all step.
  void skip_to_start() {
    TraceLines lines(text_, file_);
    while (lines.next()) {
      if (lines.line().find("\"ANNOTATE\"") == std::string_view::npos ||
          lines.line().find("\"START\"") == std::string_view::npos)
        continue;
      while (lines_.number() < lines.number()) lines_.next();
      return;
    }
  }

  std::optional<JsonText> next_record() {
    constexpr int kDepth = 2;
    while (lines_.next()) {
      if (!lines_.line().empty()) return JsonText(lines_.line(), lines_.where(), kDepth);
    }
    return std::nullopt;
  }

  /// The next record, which must be of this instruction and about this name.
  JsonText record_of(const char* instruction, const std::string& name) {
    auto text = next_record();
    if (!text)
      throw ConfigError("{}: the log ends before the {} of {}", file_, instruction,
                        shown_text(name));
    JsonObject record = text->root();
    if (record.text("INSTRUCTION") != instruction || record.text("NAME") != name)
      throw ConfigError("{}: the {} of {} should stand here", lines_.where(), instruction,
                        shown_text(name));
    return std::move(*text);
  }

  void step(JsonObject& record, const std::string& instruction) {
    if (instruction == "CALL") {
      call(record);
    } else if (instruction == "MUTATE") {
      mutate(record);
    } else if (instruction == "CONSTANT") {
      const std::string name = record.text("NAME");
      define(name,
             new_storage(builder_.carried_in(memory_of(name), StorageClass::kParameter), true));
    } else if (instruction == "COPY") {
      define(record.text("DST"), find(record.text("SRC")));
    } else if (instruction == "COPY_FROM") {
      const std::size_t source = find(record.text("SRC"));
      const std::string name = record.text("DST");
      release(name);
      names_.erase(name);
      define(name, source);
    } else if (instruction == "RELEASE") {
      release(record.text("NAME"));
    } else if (instruction != "ANNOTATE") {
      throw ConfigError("{}: unknown instruction '{}'", lines_.where(), shown_text(instruction));
    }
  }

  void call(JsonObject& record) {
    const std::vector<std::size_t> arguments = arguments_of(record);
    const std::vector<std::string> results = record.texts("RESULT", JsonObject::kAnySize);
    begin_op(record, arguments);
    bool is_view = !results.empty();
    for (const std::string& name : results) {
      const std::uint64_t bytes = memory_of(name);
      const auto alias = alias_in(record_of("ALIAS", name).root(), arguments.size());
      is_view = is_view && alias;
      // The storage of an argument, or one of its own.
      define(name, alias ? arguments[*alias]
                         : new_storage(builder_.born(bytes, StorageClass::kActivation), false));
    }
    // A view touches no bytes: its arguments may be anywhere.
    if (is_view) return;
    for (const std::size_t argument : arguments) builder_.use(storages_[argument].value);
  }

  /// An operator that writes some of its arguments in place.
  void mutate(JsonObject& record) {
    const std::vector<std::size_t> arguments = arguments_of(record);
    begin_op(record, arguments);
    for (const std::size_t argument : arguments) builder_.use(storages_[argument].value);
    const auto most = static_cast<std::int64_t>(arguments.size()) - 1;
    for (const std::size_t written :
         record.counts<std::size_t>("MUTATE", JsonObject::kAnySize, 0, most))
      builder_.use(storages_[arguments[written]].value, true);
  }

  void begin_op(JsonObject& record, const std::vector<std::size_t>& arguments) {
    std::string text;
    for (const std::size_t argument : arguments)
      text +=
          message("{}{} B", text.empty() ? "" : ", ", builder_.bytes(storages_[argument].value));
    builder_.begin_op(record.text("NAME"), std::move(text),
                      Duration(number(record.text("TIME"), "TIME")));
  }

  std::vector<std::size_t> arguments_of(JsonObject& record) const {
    std::vector<std::size_t> arguments;
    for (const std::string& name : record.texts("ARGS", JsonObject::kAnySize))
      arguments.push_back(find(name));
    return arguments;
  }

  std::uint64_t memory_of(const std::string& name) {
    return number(record_of("MEMORY", name).root().text("MEMORY"), "MEMORY");
  }

  std::optional<std::size_t> alias_in(JsonObject record, std::size_t arguments) const {
    const std::string text = record.text("ALIAS");
    if (text == "-1") return std::nullopt;
    const std::uint64_t alias = number(text, "ALIAS");
    if (alias >= arguments)
      throw ConfigError("{}: ALIAS is {}, but the operator has {} arguments", lines_.where(), alias,
                        arguments);
    return alias;
  }

  /// Logs hold numbers as text.
  std::uint64_t number(const std::string& text, const char* key) const {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, status] = std::from_chars(text.data(), end, value);
    if (status != std::errc() || stop != end || value > kMostNumber)
      throw ConfigError("{}: {} is '{}' instead of a whole number from 0 to 2^60", lines_.where(),
                        key, shown_text(text));
    return value;
  }

  std::size_t new_storage(TraceBuilder::Value value, bool is_constant) {
    storages_.push_back({value, 0, is_constant});
    return storages_.size() - 1;
  }

  void define(const std::string& name, std::size_t storage) {
    if (!names_.try_emplace(name, Name{storage, 0}).second)
      throw ConfigError("{}: the name {} is given a second time", lines_.where(), shown_text(name));
    ++storages_[storage].names;
  }

  const Name& known(const std::string& name) const {
    const auto found = names_.find(name);
    if (found == names_.end())
      throw ConfigError("{}: there is nothing called {}", lines_.where(), shown_text(name));
    if (found->second.released_at != 0)
      throw ConfigError("{}: {} was released in line {}", lines_.where(), shown_text(name),
                        found->second.released_at);
    return found->second;
  }

  std::size_t find(const std::string& name) const { return known(name).storage; }

  void release(const std::string& name) {
    Storage& storage = storages_[known(name).storage];
    names_[name].released_at = lines_.number();
    if (--storage.names > 0) return;
    builder_.dies(storage.value);
    // Parameters are there for the next step.
    if (storage.is_constant) builder_.set_class(storage.value, StorageClass::kInput);
  }

  std::string_view text_;
  const std::string& file_;
  TraceLines lines_;
  TraceBuilder builder_;
  std::vector<Storage> storages_;
  std::unordered_map<std::string, Name> names_;
};

}  // namespace

StepProfile import_dtr(std::string_view text, const std::string& name) {
  return named(name, [&] { return DtrReplay(text, name).replay(); });
}

}  // namespace spillway::profile
