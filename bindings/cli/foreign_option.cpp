#include "foreign_option.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "child_output.h"
#include "command_line.h"
#include "help_text.h"
#include "installation.h"
#include "spillway/base/error.h"
#include "spillway/base/nearest_name.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;
using nlohmann::ordered_json;

/// What users and older versions call an option.
struct OtherWord {
  std::string_view word;
  std::string_view name;
  std::string_view value{};  ///< The form of the value where that is another one, too.
};

constexpr std::string_view kMemoryFirst = "ram:SIZE,DIR";

/// A command that has several of the names of a word has the first one of these.
constexpr std::array<OtherWord, 15> kOtherWords{{{"--topology", "--cluster"},
                                                 {"--data-parallel", "--replicas"},
                                                 {"--groups", "--replicas"},
                                                 {"--svg", "--picture"},
                                                 {"--budget", "--device-memory"},
                                                 {"--stages", "--ranks"},
                                                 {"--gpus", "--ranks"},
                                                 {"--devices", "--ranks"},
                                                 {"--host", "--host-memory"},
                                                 {"--ram", "--host-memory"},
                                                 {"--pinned", "--host-memory"},
                                                 {"--host", "--nvme", kMemoryFirst},
                                                 {"--ram", "--nvme", kMemoryFirst},
                                                 {"--pinned", "--nvme", kMemoryFirst},
                                                 {"--host-memory", "--nvme", kMemoryFirst}}};

/// An option as a command has it.
struct Spelling {
  std::string name;
  std::string type;   ///< Of its value; empty: it takes none, or none of its own word.
  std::string value;  ///< See OtherWord.

  std::string text() const { return value.empty() ? name : message("{} {}", name, value); }
};

/// What a command says of itself.
class CommandTable {
 public:
  explicit CommandTable(ordered_json json) : json_(std::move(json)) {}

  std::string name() const { return json_["command"]; }
  Words arguments() const {
    Words names;
    for (const ordered_json& argument : json_["arguments"]) names.push_back(argument["name"]);
    return names;
  }
  std::string first_usage() const {
    const std::string usage = json_["usage"];
    return usage.substr(0, usage.find('\n'));
  }

  Words options() const {
    Words names;
    for (const ordered_json& option : json_["options"]) names.push_back(option["name"]);
    return names;
  }

  std::optional<Spelling> exactly(std::string_view name) const {
    for (const ordered_json& option : json_["options"])
      if (option["name"] == name)
        return Spelling{option["name"], option.contains("switch") ? "" : option["value"], {}};
    return std::nullopt;
  }

  std::optional<Spelling> by_other_word(std::string_view name) const {
    for (const OtherWord& other : kOtherWords) {
      if (other.word != name) continue;
      if (std::optional<Spelling> found = exactly(other.name)) {
        found->value = other.value;
        return found;
      }
    }
    return std::nullopt;
  }

  std::optional<Spelling> spelled(std::string_view name) const {
    std::optional<Spelling> same = exactly(name);
    return same ? same : by_other_word(name);
  }

  /// The words of a user for this command, and in capitals what it cannot do without; empty where
  /// it does not take them all.
  std::string line_of(const Words& words) const;

 private:
  std::string missing_in(const Words& names, std::size_t given) const;

  ordered_json json_;
};

std::string CommandTable::missing_in(const Words& names, std::size_t given) const {
  std::string text;
  for (const ordered_json& choice : json_["required"]) {
    const bool has_one = std::any_of(choice.begin(), choice.end(), [&](const ordered_json& option) {
      return std::find(names.begin(), names.end(), option) != names.end();
    });
    const std::string first = choice.front();
    const std::string type = exactly(first)->type;
    if (!has_one) text += message(" {} {}", first, type.substr(0, type.find('|')));
  }
  const Words all = arguments();
  for (; given < all.size(); ++given) text += message(" {}", all[given]);
  return text;
}

std::string CommandTable::line_of(const Words& words) const {
  std::string line = message("spillway {}", name());
  Words names;
  std::size_t count = 0;
  bool ends_options = false;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (ends_options || !word.starts_with("--")) {
      ++count;
      line += message(" {}", shell_word(word));
      continue;
    }
    if (word == "--") {
      ends_options = true;
      line += " --";
      continue;
    }
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string given = word.substr(0, equals);
    const auto here = spelled(given);
    if (!here || !here->value.empty()) return {};
    const bool has_next = !here->type.empty() && equals == word.size() && at + 1 < words.size();
    const std::string value =
        has_next ? words[++at] : word.substr(std::min(equals + 1, word.size()));
    // A share of what one thing needs is none of another.
    if (here->name != given && value.ends_with('%')) return {};
    names.push_back(here->name);
    line += message(" {}", shell_word(here->name + word.substr(equals)));
    if (has_next) line += message(" {}", shell_word(value));
  }
  return count > arguments().size() ? "" : line + missing_in(names, count);
}

/// Those of all commands but this one, from the command beside this program: some are another
/// program's. Without it, none.
std::vector<CommandTable> tables_beside(const std::string& own) {
  namespace fs = std::filesystem;
  const std::string path = own_path();
  std::vector<CommandTable> tables;
  for (const CommandSummary& each : kCommands) {
    if (path.empty() || each.name == own) continue;
    const auto text = output_of({(fs::path(path).parent_path() / "spillway").string(),
                                 std::string(each.name), std::string(kHelpTable)});
    ordered_json table = ordered_json::parse(text.value_or(""), nullptr, false);
    if (table.contains("required")) tables.emplace_back(std::move(table));
  }
  return tables;
}

std::string in_small_letters(std::string word) {
  for (char& letter : word)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return word;
}

/// "(`spillway plan-job` and `spillway costs` have it ...)"; empty: none of them has it.
std::string where_it_is(const CommandTable& own, const std::vector<CommandTable>& tables,
                        const Words& words, const std::string& name) {
  std::vector<std::pair<const CommandTable*, Spelling>> found;
  for (const CommandTable& table : tables)
    if (const auto same = table.exactly(name)) found.emplace_back(&table, *same);
  for (const CommandTable& table : tables)
    if (const auto other = table.by_other_word(name);
        other && (found.empty() || found.front().second.text() == other->text()))
      found.emplace_back(&table, *other);
  if (found.empty()) return {};
  std::string names;
  std::string line;
  for (const auto& [table, spelling] : found) {
    if (!names.empty()) names += table == found.back().first ? " and " : ", ";
    names += message("`spillway {}`", table->name());
    if (line.empty() && !own.arguments().empty() && table->arguments() == own.arguments())
      line = table->line_of(words);
  }
  const std::string& text = found.front().second.text();
  const std::string step = !line.empty() ? message(": {}", line)
                           : found.size() == 1
                               ? message("; see spillway {} --help", found.front().first->name())
                               : std::string("; see --help of each");
  return message(" ({} {} it{}{})", names, found.size() == 1 ? "has" : "have",
                 text == name ? "" : message(", as {}", text), step);
}

/// The command that an option is called like, "--check", with the value of that option as its first
/// argument; empty: there is none.
std::string command_called(const std::vector<CommandTable>& tables, Words words,
                           const std::string& name) {
  for (const CommandTable& table : tables) {
    if (name != message("--{}", table.name())) continue;
    const auto option = std::find_if(words.begin(), words.end(), [&](const std::string& word) {
      return word.substr(0, word.find('=')) == name;
    });
    std::string first = option->substr(std::min(name.size() + 1, option->size()));
    const auto next = words.erase(option);
    if (first.empty() && next != words.end() && !next->starts_with("-")) {
      first = *next;
      words.erase(next);
    }
    if (!first.empty()) words.insert(words.begin(), first);
    const std::string line = table.line_of(words);
    return message(" (it is a command of its own: {})", line.empty() ? table.first_usage() : line);
  }
  return {};
}

}  // namespace

void refuse_unknown_options(const ordered_json& table, const Words& words) {
  const CommandTable own(table);
  Words unknown;
  for (auto word = words.begin(); word != words.end() && *word != "--"; ++word)
    if (const std::string name = word->substr(0, word->find('='));
        name.starts_with("--") && !own.exactly(name))
      unknown.push_back(name);
  if (unknown.empty()) return;
  // Of several the one that says most: a command.
  const auto is_command = [](const std::string& name) {
    return std::any_of(kCommands.begin(), kCommands.end(),
                       [&](const CommandSummary& each) { return name.substr(2) == each.name; });
  };
  const auto first = std::find_if(unknown.begin(), unknown.end(), is_command);
  refuse_unknown_option(table, words, first == unknown.end() ? unknown.front() : *first);
}

void refuse_unknown_option(const ordered_json& table, const Words& words, const std::string& name) {
  const CommandTable own(table);
  if (const auto here = own.by_other_word(name)) {
    const std::string line = own.arguments().empty() ? "" : own.line_of(words);
    throw ConfigError("`spillway {}` has no {} (here it is {}{})", own.name(), name, here->text(),
                      line.empty() ? "" : message(": {}", line));
  }
  for (const std::string& argument : own.arguments())
    if (name == message("--{}", in_small_letters(argument)))
      throw ConfigError("`spillway {}` has no {} ({} stands alone: {})", own.name(), name, argument,
                        own.first_usage());
  const std::vector<CommandTable> others = tables_beside(own.name());
  // Before options of that name, which runs have, too.
  std::string where = command_called(others, words, name);
  if (where.empty()) where = where_it_is(own, others, words, name);
  if (!where.empty()) throw ConfigError("`spillway {}` has no {}{}", own.name(), name, where);
  // The dashes are alike in all, and a list of them says nothing of what they mean.
  const std::vector<std::string> names = own.options();
  std::vector<std::string_view> bare;
  for (const std::string& each : names) bare.push_back(std::string_view(each).substr(2));
  const auto nearest = nearest_name(name.substr(std::min<std::size_t>(2, name.size())), bare);
  if (!nearest)
    throw ConfigError("unknown option {} (spillway {} --help explains all)", name, own.name());
  throw ConfigError("unknown option {} (did you mean '--{}'?)", name, *nearest);
}

}  // namespace spillway::cli
