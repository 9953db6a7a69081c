#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <exception>
#include <iostream>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "exit_codes.h"
#include "foreign_option.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;
using nlohmann::ordered_json;

/// Breaks text at blanks so that no line exceeds 80 columns; each line starts with `indent` blanks.
std::string wrapped(const std::string& text, std::size_t indent) {
  constexpr std::size_t kWidth = 80;
  const std::string start(indent, ' ');
  std::string result;
  std::string line = start;
  std::istringstream words(text);
  for (std::string word; words >> word; line += word) {
    if (line.size() == indent) continue;
    if (line.size() + 1 + word.size() > kWidth)
      result += std::exchange(line, start) + "\n";
    else
      line += ' ';
  }
  return result + line + "\n";
}

/// Lays help out for terminals of 80 columns: an option, and below it what it means.
class HelpFormat final : public CLI::Formatter {
 public:
  explicit HelpFormat(std::string usage) : usage_(std::move(usage)) {}

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string help = Formatter::make_help(app, std::move(name), mode);
    // CLI11 puts an empty line behind each group and one before the next.
    for (auto at = help.find("\n\n\n"); at != std::string::npos; at = help.find("\n\n\n", at))
      help.erase(at, 1);
    return help;
  }

  std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
    return "\nUsage: " + usage_ + "\n";
  }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), 0);
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string name = is_positional ? option->get_name(true) : option->get_name(false, true);
    if (!is_positional && option->get_items_expected_max() > 0 && !option->get_type_name().empty())
      name += " " + option->get_type_name();
    return "  " + name + "\n" + wrapped(option->get_description(), 6);
  }

 private:
  std::string usage_;
};

/// Options that may not, or must, stand beside others.
struct Rule {
  const CLI::Option* option;
  std::vector<const CLI::Option*> others;
  std::string reason;  ///< Empty: one of the others is needed.
};

/// "--budget 4GiB"
std::string as_given(const CLI::Option* option) {
  const std::string name = option->get_name(false, true);
  return option->get_items_expected_max() == 0
             ? name
             : name + " " + without_control_characters(option->results().back());
}

Words unknown_options(const CLI::App& app, const Words& words) {
  Words unknown;
  for (auto word = words.begin(); word != words.end() && *word != "--"; ++word)
    if (const std::string name = word->substr(0, word->find('='));
        name.starts_with("--") && app.get_option_no_throw(name) == nullptr)
      unknown.push_back(name);
  return unknown;
}

[[noreturn]] void refuse_dash() {
  throw ConfigError("'-' is no name of a file here (one of that name is ./-)");
}

/// CLI11's own sentences for what is wrong with an option name no next step.
void check_options(const CLI::App& app, const Words& words) {
  std::vector<const CLI::Option*> seen;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (word == "--") return;
    if (word == "-") refuse_dash();
    if (word.substr(0, 2) != "--") continue;
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const CLI::Option* option = app.get_option_no_throw(name);
    const bool takes_value = option->get_items_expected_max() > 0;
    const bool has_value = equals < word.size();
    if (!takes_value && has_value && option->get_disable_flag_override())
      throw ConfigError("{} takes no value", name);
    // CLI11 would count --quiet=3 as three times.
    if (const runtime::SettingInfo* setting = setting_behind(name);
        !takes_value && has_value && setting != nullptr) {
      runtime::Settings settings;
      runtime::assign_setting(settings, setting->key, word.substr(equals + 1), name);
    }
    if (takes_value && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw &&
        std::find(seen.begin(), seen.end(), option) != seen.end())
      throw ConfigError("{} is given twice", name);
    seen.push_back(option);
    if (!takes_value) continue;
    const std::string type = option->get_type_name();
    if (!has_value) require_value(name, type, at + 1 < words.size() ? &words[at + 1] : nullptr);
    if (type == "FILE" && (has_value ? word.substr(equals + 1) : words[at + 1]) == "-")
      refuse_dash();
    if (!has_value) ++at;
  }
}

void keep_rules(const std::vector<Rule>& rules) {
  const auto is_given = [](const CLI::Option* option) { return option->count() > 0; };
  for (const auto& [option, others, reason] : rules) {
    if (!is_given(option)) continue;
    const auto other = std::find_if(others.begin(), others.end(), is_given);
    if (!reason.empty()) {
      if (other == others.end()) continue;
      throw ConfigError("{} has no place beside {}, {} (leave one of them out)", as_given(*other),
                        option->get_name(false, true), reason);
    }
    if (other != others.end()) continue;
    std::vector<std::string> names;
    for (const CLI::Option* each : others) names.push_back(each->get_name(false, true));
    throw ConfigError("{} belongs to {}, which is missing (add it, or leave {} out)",
                      as_given(option), listed(names, "or"), option->get_name(false, true));
  }
}

void require_positionals(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() || !option->get_required() || option->count() > 0) continue;
    std::string meaning = option->get_description();
    meaning.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(meaning.front())));
    throw ConfigError("{} is missing: {} (see spillway {} --help)", option->get_name(true), meaning,
                      app.get_name());
  }
}

}  // namespace

struct CommandLine::Parts {
  CLI::App app;
  std::vector<std::pair<const runtime::SettingInfo*, const CLI::Option*>> settings{};
  std::vector<Rule> rules{};
  std::vector<std::pair<std::vector<const CLI::Option*>, std::string>>
      required{};  ///< See require.
  std::string group{};
  std::string usage{};
  std::string lists{};  ///< Of names, before the examples.
  std::string examples{};
  std::map<std::string, Words> offered{};  ///< By option, where its type says NAME.

  CLI::Option* add(CLI::Option* option) const {
    return group.empty() ? option : option->group(group);
  }
  std::vector<const CLI::Option*> named(const Words& names) const {
    std::vector<const CLI::Option*> options;
    for (const std::string& name : names) options.push_back(app.get_option(name));
    return options;
  }
  ordered_json table_entry(const CLI::Option& option) const;
  ordered_json table() const;
  void refuse_extras(const Words& words) const;
  void refuse_missing() const;
};

ordered_json CommandLine::Parts::table_entry(const CLI::Option& option) const {
  const std::string name = option.get_name(false, false);
  const bool takes_value = option.get_items_expected_max() > 0;
  ordered_json entry{{"name", name},
                     {"letters", option.get_snames()},
                     {"value", takes_value ? option.get_type_name() : ""},
                     {"meaning", option.get_description()},
                     {"group", option.get_group()}};
  if (const auto known = offered.find(name); known != offered.end()) entry["names"] = known->second;
  for (const auto& [info, of_setting] : settings) {
    if (of_setting != &option) continue;
    entry["variable"] = runtime::environment_name(info->key);
    if (info->is_switch) entry["switch"] = info->value;
  }
  return entry;
}

ordered_json CommandLine::Parts::table() const {
  ordered_json arguments = ordered_json::array();
  ordered_json options = ordered_json::array();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional())
      arguments.push_back({{"name", option->get_name(true)},
                           {"meaning", option->get_description()},
                           {"required", option->get_required()}});
    else
      options.push_back(table_entry(*option));
  }
  ordered_json choices = ordered_json::array();
  for (const auto& [choice, question] : required) {
    ordered_json& names = choices.emplace_back(ordered_json::array());
    for (const CLI::Option* option : choice) names.push_back(option->get_name(false, false));
  }
  return {{"command", app.get_name()},
          {"description", app.get_description()},
          {"usage", usage},
          {"examples", app.get_footer()},
          {"arguments", arguments},
          {"options", options},
          {"required", choices}};
}

void CommandLine::Parts::refuse_extras(const Words& words) const {
  auto extras = app.remaining();
  // CLI11 keeps the mark behind which everything is an argument.
  extras.erase(std::remove(extras.begin(), extras.end(), "--"), extras.end());
  if (extras.empty()) return;
  if (extras.front().empty() || extras.front().front() != '-')
    throw ConfigError("unexpected argument '{}' (see spillway {} --help)", extras.front(),
                      app.get_name());
  refuse_unknown_options(table(), words, {extras.front().substr(0, extras.front().find('='))});
}

void CommandLine::Parts::refuse_missing() const {
  for (const auto& [choice, question] : required)
    if (std::none_of(choice.begin(), choice.end(),
                     [](const CLI::Option* option) { return option->count() > 0; }))
      throw ConfigError("{} is missing: {}", choice.front()->get_name(false, true), question);
}

CommandLine::CommandLine(std::string name, std::string_view description, std::string usage,
                         std::string_view examples)
    : parts_(new Parts{CLI::App(std::string(description), std::move(name))}) {
  parts_->usage = usage;
  parts_->examples = examples;
  add_names({}, {});
  parts_->app.formatter(std::make_shared<HelpFormat>(std::move(usage)));
  parts_->app.allow_extras();
}

CommandLine::CommandLine(CommandLine&&) noexcept = default;
CommandLine::~CommandLine() = default;

void CommandLine::begin_group(const std::string& heading) { parts_->group = heading; }

void CommandLine::add_reader(const std::string& name, const std::string& type,
                             const std::string& meaning,
                             std::function<void(const std::string& text)> read,
                             const std::vector<std::string>& names) {
  if (!names.empty()) parts_->offered[name] = names;
  parts_->add(parts_->app.add_option_function<std::string>(name, std::move(read), meaning))
      ->type_name(type);
}

void CommandLine::add_text(const std::string& name, std::string& word, const std::string& type,
                           const std::string& meaning) {
  parts_->add(parts_->app.add_option(name, word, meaning))->type_name(type);
}

void CommandLine::add_flag(const std::string& name, bool& is_given, const std::string& meaning) {
  parts_->add(parts_->app.add_flag(name, is_given, meaning))->disable_flag_override();
}

void CommandLine::require(const std::vector<std::string>& names, const std::string& question) {
  parts_->required.emplace_back(parts_->named(names), question);
}

void CommandLine::needs(const std::vector<std::string>& names,
                        const std::vector<std::string>& others) {
  for (const CLI::Option* option : parts_->named(names))
    parts_->rules.push_back({option, parts_->named(others), {}});
}

void CommandLine::excludes(const std::string& name, const std::vector<std::string>& others,
                           const std::string& reason) {
  parts_->rules.push_back({parts_->app.get_option(name), parts_->named(others), reason});
}

void CommandLine::add_names(const std::string& heading, const runtime::NamedTexts& names) {
  std::size_t widest = 0;
  for (const auto& [name, meaning] : names) widest = std::max(widest, name.size());
  if (!names.empty()) parts_->lists += heading + ":\n";
  for (const auto& [name, meaning] : names)
    parts_->lists += wrapped(meaning, widest + 4).replace(2, name.size(), name);
  if (!names.empty()) parts_->lists += '\n';
  parts_->app.footer(parts_->lists + parts_->examples);
}

std::string CommandLine::given_in(const std::string& heading) const {
  for (const CLI::Option* option : parts_->app.get_options())
    if (option->get_group() == heading && option->count() > 0) return as_given(option);
  return {};
}

runtime::NamedTexts CommandLine::given_outside(const std::string& heading) const {
  runtime::NamedTexts texts;
  for (const CLI::Option* option : parts_->app.get_options()) {
    if (option->get_positional() || option->count() == 0 || option->get_group() == heading)
      continue;
    const bool takes_value = option->get_items_expected_max() > 0;
    texts.emplace_back(option->get_name(false, true), takes_value ? option->results().back() : "");
  }
  return texts;
}

void CommandLine::add_argument(const std::string& name, std::string& word,
                               const std::string& meaning, Need need) {
  parts_->app.add_option(name, word, meaning)->required(need == Need::kRequired);
}

void CommandLine::add_settings(const std::vector<std::string_view>& keys,
                               const std::vector<std::string_view>& without) {
  const auto is_among = [](const std::vector<std::string_view>& list, std::string_view key) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  for (const runtime::SettingInfo& info : runtime::setting_catalogue()) {
    if ((!keys.empty() && !is_among(keys, info.key)) || is_among(without, info.key)) continue;
    const std::string name = "--" + std::string(info.key);
    const std::string help = message("{} [{}]", info.meaning, info.fallback);
    // --verify or --verify=off; `split_run_arguments` makes the latter of two words.
    CLI::Option* const option =
        info.is_switch ? parts_->app.add_flag(name, help)
                       : parts_->app.add_option(name, help)->type_name(std::string(info.value));
    option->take_last()->group(std::string(info.group));
    parts_->settings.emplace_back(&info, option);
  }
}

runtime::NamedTexts CommandLine::given_settings() const {
  runtime::NamedTexts texts;
  for (const auto& [info, option] : parts_->settings) {
    if (option->count() == 0) continue;
    const std::string& text = option->results().back();
    texts.emplace_back(std::string(info->key), info->is_switch && text == "true" ? "on" : text);
  }
  return texts;
}

bool CommandLine::parse(const std::vector<std::string>& words,
                        const std::vector<std::string>& all) {
  CLI::App& app = parts_->app;
  if (words.size() == 1 && words.front() == kHelpTable) {
    std::cout << parts_->table() << '\n';
    return false;
  }
  if (const Words unknown = unknown_options(app, words); !unknown.empty())
    refuse_unknown_options(parts_->table(), all.empty() ? words : all, unknown);
  check_options(app, words);
  try {
    app.parse(Words(words.rbegin(), words.rend()));  // CLI11 takes words from the back.
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::RequiredError&) {
    require_positionals(app);
    throw;
  }
  parts_->refuse_extras(words);
  keep_rules(parts_->rules);
  parts_->refuse_missing();
  return true;
}

int exit_code_of(int (*command)(const std::vector<std::string>& words), int count, char** words) {
  int code = kWrongUsage;
  try {
    code = command(Words(words + 1, words + count));
  } catch (const std::bad_alloc&) {
    log_error("memory ran out (give the command more; ulimit -v and the control group limit it)");
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
  // What was printed has to arrive: an empty file is no result.
  if (std::cout.flush()) return code;
  log_error("cannot write to standard output (free some room where it goes, or send it elsewhere)");
  return code == kDone ? kWrongUsage : code;
}

}  // namespace spillway::cli
