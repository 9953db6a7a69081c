#include "foreign_option.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
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
  std::string_view value{};  ///< The form of the value where that is another one, too: a name,
                             ///< or text with the SIZE or the GB/s of the user.
};

constexpr std::string_view kMemoryFirst = "ram:SIZE,DIR";

constexpr std::string_view kBehindLink = "SIZE --link-out GB/s --link-in GB/s";

/// A command that has several of the names of a word has the first one of these.
constexpr std::array<OtherWord, 19> kOtherWords{{{"--topology", "--cluster"},
                                                 {"--compare", "--strategy", "all"},
                                                 {"--link", "--link-out", "GB/s --link-in GB/s"},
                                                 {"--profile", "--profile-out"},
                                                 {"--data-parallel", "--replicas"},
                                                 {"--groups", "--replicas"},
                                                 {"--svg", "--picture"},
                                                 {"--budget", "--device-memory"},
                                                 {"--device-memory", "--budget"},
                                                 {"--stages", "--ranks"},
                                                 {"--gpus", "--ranks"},
                                                 {"--devices", "--ranks"},
                                                 {"--host", "--host-memory", kBehindLink},
                                                 {"--ram", "--host-memory", kBehindLink},
                                                 {"--pinned", "--host-memory", kBehindLink},
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
  bool takes_size() const { return type == "SIZE" || value.find("SIZE") != std::string::npos; }
  bool takes_value() const {
    return value.empty() ? !type.empty() : takes_size() || value.find(kRate) != std::string::npos;
  }
  /// In place of what a user wrote: "--budget=4GiB", or "--budget" and "4GiB".
  Words words_for(const std::string& given, bool is_one_word) const;

  static constexpr std::string_view kRate = "GB/s";
};

Words Spelling::words_for(const std::string& given, bool is_one_word) const {
  if (value.empty() && is_one_word) return {message("{}={}", name, given)};
  if (value.empty() && !takes_value()) return {name};
  if (value.empty()) return {name, given.empty() ? type : given};
  std::istringstream all(text());
  Words words{std::istream_iterator<std::string>(all), {}};
  if (given.empty()) return words;  // Their places stand for what is missing.
  const std::string_view place = takes_size() ? "SIZE" : kRate;
  // Option values of rates are numbers, whose unit the help names.
  const std::string filled = given.ends_with(kRate) && place == kRate
                                 ? given.substr(0, given.size() - kRate.size())
                                 : given;
  for (std::string& word : words)
    if (const auto at = word.find(place); at != std::string::npos)
      word.replace(at, place.size(), filled);
  return words;
}

bool is_size(const std::string& text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) != 0 &&
         text.back() != '%' && text.find(',') == std::string::npos;
}

/// A line for a command made of what was written for another one.
struct Line {
  std::string text;     ///< Empty: there is none.
  std::string skipped;  ///< ", without --effort": what only the other one has.
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
  /// Whether it works on a file that it is given, as planning does.
  bool has_required_argument() const {
    const ordered_json& all = json_["arguments"];
    return std::any_of(all.begin(), all.end(),
                       [](const ordered_json& argument) { return argument["required"] == true; });
  }
  /// With a program behind its options, as runs have it.
  bool takes_program() const { return usage_with({}).find("-- program") != std::string::npos; }
  /// Whether these arguments of another command may be meant for this one: "PROFILE|PLAN" takes a
  /// "PLAN".
  bool takes_arguments_of(const CommandTable& other) const;
  /// The first line of its usage that has the option, or the first one.
  std::string usage_with(const std::string& option) const;

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
        // A name that the option does not know.
        if (!found->value.empty() && !found->takes_value() &&
            found->type.find(found->value) == std::string::npos)
          continue;
        return found;
      }
    }
    return std::nullopt;
  }

  std::optional<Spelling> spelled(std::string_view name) const {
    std::optional<Spelling> same = exactly(name);
    return same ? same : by_other_word(name);
  }

  /// The words of a user of another command for this one, and in capitals what it cannot do
  /// without; none where neither has a word.
  Line line_of(const Words& words, const CommandTable& other) const;

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
  const ordered_json& all = json_["arguments"];
  for (; given < all.size(); ++given)
    if (all[given]["required"] == true)
      text += message(" {}", all[given]["name"].get<std::string>());
  return text;
}

bool CommandTable::takes_arguments_of(const CommandTable& other) const {
  const auto is_one_of = [](const std::string& word, const std::string& words) {
    return message("|{}|", words).find(message("|{}|", word)) != std::string::npos;
  };
  const Words mine = arguments();
  const Words theirs = other.arguments();
  return std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                    [&](const std::string& a, const std::string& b) {
                      return is_one_of(a, b) || is_one_of(b, a);
                    });
}

std::string CommandTable::usage_with(const std::string& option) const {
  std::istringstream lines(json_["usage"].get<std::string>());
  std::string first;
  for (std::string each; std::getline(lines >> std::ws, each);) {
    if (message("{} ", each).find(message(" {} ", option)) != std::string::npos) return each;
    if (first.empty()) first = each;
  }
  return first;
}

Line CommandTable::line_of(const Words& words, const CommandTable& other) const {
  Line line{message("spillway {}", name()), {}};
  Words names;
  std::size_t count = 0;
  bool ends_options = false;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (ends_options || !word.starts_with("--")) {
      // Its options are its own.
      if (takes_program()) ends_options = true;
      if (!takes_program()) ++count;
      line.text += message(" {}", shell_word(word));
      continue;
    }
    if (word == "--") {
      ends_options = true;
      line.text += " --";
      continue;
    }
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string given = word.substr(0, equals);
    const auto here = spelled(given);
    const auto known = here ? here : other.exactly(given);
    if (!known) return {};
    const bool is_one_word = equals < word.size();
    const bool has_next = known->takes_value() && !is_one_word && at + 1 < words.size();
    const std::string value =
        has_next ? words[++at] : word.substr(std::min(equals + 1, word.size()));
    if (!here) {
      line.skipped += message("{}{}", line.skipped.empty() ? ", without " : " and ", given);
      continue;
    }
    // What else a budget may be says nothing of devices: a share, "auto", "cuda=4GiB".
    if (here->name != given && here->takes_size() && !is_size(value)) return {};
    for (const std::string& each : here->words_for(value, is_one_word)) {
      line.text += message(" {}", shell_word(each));
      if (!each.starts_with("--")) continue;
      const std::string option = each.substr(0, each.find('='));
      if (std::find(names.begin(), names.end(), option) != names.end()) return {};
      names.push_back(option);
    }
  }
  if (count > arguments().size()) return {};
  line.text += missing_in(names, count);
  return line;
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

/// "(`spillway plan-job` and `spillway costs` have it ...)"; empty: none of them has it. Where
/// there are any, those alone that take the same arguments, or some, as this one does; and those
/// that call it the same.
std::string where_it_is(const CommandTable& own, const std::vector<CommandTable>& tables,
                        const Words& words, const std::string& name) {
  using Found = std::pair<const CommandTable*, Spelling>;
  std::vector<Found> found;
  for (const CommandTable& table : tables)
    if (const auto spelling = table.spelled(name)) found.emplace_back(&table, *spelling);
  const auto prefer = [&](auto is_better) {
    if (std::any_of(found.begin(), found.end(), is_better))
      std::erase_if(found, [&](const Found& each) { return !is_better(each); });
  };
  if (own.has_required_argument()) {
    prefer([](const Found& each) { return each.first->has_required_argument(); });
    prefer([&](const Found& each) { return each.first->arguments() == own.arguments(); });
    prefer([&](const Found& each) { return each.first->takes_arguments_of(own); });
  }
  prefer([&](const Found& each) { return each.second.name == name; });
  if (found.empty()) return {};
  std::vector<std::string> names;
  for (const auto& [table, spelling] : found)
    names.push_back(message("`spillway {}`", table->name()));
  const auto& [first, spelling] = found.front();
  Line line;
  if (own.has_required_argument() && first->takes_arguments_of(own))
    line = first->line_of(words, own);
  if (line.text.empty() && found.size() == 1) line = {first->usage_with(spelling.name), {}};
  return message(" ({} {} it{}{}{})", listed(names), found.size() == 1 ? "has" : "have",
                 spelling.text() == name ? "" : message(", as {}", spelling.text()), line.skipped,
                 line.text.empty() ? "; see --help of each" : message(": {}", line.text));
}

/// The words with the value of that option as the first argument, in place of both.
Words with_argument(Words words, const std::string& name) {
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
  return words;
}

/// The command that an option is called like, "--check", with the value of that option as its first
/// argument; empty: there is none.
std::string command_called(const CommandTable& own, const std::vector<CommandTable>& tables,
                           const Words& words, const std::string& name) {
  for (const CommandTable& table : tables) {
    if (name != message("--{}", table.name()) || !table.has_required_argument()) continue;
    const Line line = table.line_of(with_argument(words, name), own);
    return message(" (it is a command of its own{}: {})", line.skipped,
                   line.text.empty() ? table.usage_with({}) : line.text);
  }
  return {};
}

/// Of several the one that says most: a command.
std::string most_telling(const Words& unknown) {
  const auto is_command = [](const std::string& name) {
    return std::any_of(kCommands.begin(), kCommands.end(), [&](const CommandSummary& each) {
      return name == message("--{}", each.name);
    });
  };
  const auto first = std::find_if(unknown.begin(), unknown.end(), is_command);
  return first == unknown.end() ? unknown.front() : *first;
}

}  // namespace

void refuse_unknown_options(const ordered_json& table, const Words& words, const Words& unknown) {
  const CommandTable own(table);
  Words foreign = unknown;
  std::erase_if(foreign, [&](const std::string& each) { return own.by_other_word(each); });
  const std::string name = most_telling(foreign.empty() ? unknown : foreign);
  if (const auto here = own.by_other_word(name)) {
    const std::string line = own.line_of(words, own).text;
    throw ConfigError("`spillway {}` has no {} (here it is {}{})", own.name(), name, here->text(),
                      line.empty() ? "" : message(": {}", line));
  }
  for (const std::string& argument : own.arguments())
    if (name == message("--{}", in_small_letters(argument))) {
      const std::string line = own.line_of(with_argument(words, name), own).text;
      throw ConfigError("`spillway {}` has no {} ({} stands alone: {})", own.name(), name, argument,
                        line.empty() ? own.usage_with({}) : line);
    }
  const std::vector<CommandTable> others = tables_beside(own.name());
  // Before options of that name, which runs have, too.
  std::string where = command_called(own, others, words, name);
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
