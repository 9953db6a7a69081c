#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <exception>
#include <iostream>
#include <new>

#include "exit_codes.h"
#include "setting_values.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/base/nearest_name.h"

namespace spillway::cli {
namespace {

using Words = std::vector<std::string>;

/// Breaks text at blanks so that no line exceeds 80 columns; each line starts with `indent` blanks.
std::string wrapped(std::string_view text, std::size_t indent) {
  constexpr std::size_t kWidth = 80;
  std::string result;
  std::size_t column = 0;
  while (!text.empty()) {
    const auto end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    if (column > 0 && column + 1 + word.size() > kWidth) {
      result += '\n';
      column = 0;
    }
    if (column == 0) {
      result.append(indent, ' ');
      column = indent;
    } else {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return result + "\n";
}

/// Lays help out for terminals of 80 columns: an option, and below it what it means.
class HelpFormat final : public CLI::Formatter {
 public:
  explicit HelpFormat(std::string usage) : usage_(std::move(usage)) {}

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

[[noreturn]] void refuse_option(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty())
      for (const std::string& each : option->get_lnames()) names.push_back("--" + each);
  const std::vector<std::string_view> views(names.begin(), names.end());
  // What other programs and users call it.
  constexpr std::array<std::string_view, 4> kHostMemory{"--host", "--host-memory", "--ram",
                                                        "--pinned"};
  if (std::find(kHostMemory.begin(), kHostMemory.end(), name) != kHostMemory.end() &&
      std::find(names.begin(), names.end(), "--nvme") != names.end())
    throw ConfigError("unknown option {} (host memory before the disks is --nvme ram:SIZE,DIR)",
                      name);
  // A list of all of them says nothing of what they mean.
  if (!nearest_name(name, views))
    throw ConfigError("unknown option {} (spillway {} --help explains all)", name, app.get_name());
  throw ConfigError("unknown option {}{}", name, hint_for(name, views));
}

/// CLI11's own sentences for what is wrong with an option name no next step.
void check_options(const CLI::App& app, const Words& words) {
  std::vector<const CLI::Option*> seen;
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    if (word == "--") return;
    if (word.substr(0, 2) != "--") continue;
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) refuse_option(app, name);
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
    if (!takes_value || has_value) continue;
    require_value(name, option->get_type_name(), at + 1 < words.size() ? &words[at + 1] : nullptr);
    ++at;
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

void refuse_extras(const CLI::App& app) {
  auto extras = app.remaining();
  // CLI11 keeps the mark behind which everything is an argument.
  extras.erase(std::remove(extras.begin(), extras.end(), "--"), extras.end());
  if (extras.empty()) return;
  if (extras.front().empty() || extras.front().front() != '-')
    throw ConfigError("unexpected argument '{}' (see spillway {} --help)", extras.front(),
                      app.get_name());
  refuse_option(app, extras.front().substr(0, extras.front().find('=')));
}

/// A setting that is an option, and what was given for it.
struct SettingOption {
  const runtime::SettingInfo* info;
  std::string text;
  bool is_given = false;
};

void add_setting(CLI::App& app, SettingOption& setting) {
  const std::string name = "--" + std::string(setting.info->key);
  const std::string help = message("{} [{}]", setting.info->meaning, setting.info->fallback);
  if (setting.info->is_switch) {
    // --verify or --verify=off; `split_run_arguments` makes the latter of two words.
    app.add_flag_function(
        name,
        [&setting](std::int64_t count) {
          setting.text = count > 0 ? "on" : "off";
          setting.is_given = true;
        },
        help);
    return;
  }
  app.add_option_function<std::string>(
         name,
         [&setting](const std::string& text) {
           setting.text = text;
           setting.is_given = true;
         },
         help)
      ->type_name(std::string(setting.info->value))
      ->take_last();
}

int guarded(int (*command)(const Words& words), const Words& words) {
  try {
    return command(words);
  } catch (const std::bad_alloc&) {
    log_error("memory ran out (give the command more; ulimit -v and the control group limit it)");
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
  return kWrongUsage;
}

}  // namespace

struct CommandLine::Parts {
  CLI::App app;
  std::vector<std::unique_ptr<SettingOption>> settings;
};

CommandLine::CommandLine(std::string name, std::string_view description, std::string usage,
                         std::string_view examples)
    : parts_(new Parts{CLI::App(std::string(description), std::move(name)), {}}) {
  parts_->app.footer(std::string(examples));
  parts_->app.formatter(std::make_shared<HelpFormat>(std::move(usage)));
  parts_->app.allow_extras();
}

CommandLine::CommandLine(CommandLine&&) noexcept = default;
CommandLine::~CommandLine() = default;

void CommandLine::add_text(const std::string& name, std::string& word, const std::string& type,
                           const std::string& meaning) {
  parts_->app.add_option(name, word, meaning)->type_name(type);
}

void CommandLine::add_hidden_text(const std::string& name, std::string& word) {
  parts_->app.add_option(name, word)->group("");
}

void CommandLine::add_flag(const std::string& name, bool& is_given, const std::string& meaning) {
  parts_->app.add_flag(name, is_given, meaning)->disable_flag_override();
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
    parts_->settings.push_back(std::make_unique<SettingOption>(SettingOption{&info, {}, false}));
    add_setting(parts_->app, *parts_->settings.back());
  }
}

runtime::NamedTexts CommandLine::given_settings() const {
  runtime::NamedTexts texts;
  for (const auto& setting : parts_->settings)
    if (setting->is_given) texts.emplace_back(std::string(setting->info->key), setting->text);
  return texts;
}

bool CommandLine::parse(std::vector<std::string> words) {
  CLI::App& app = parts_->app;
  check_options(app, words);
  std::reverse(words.begin(), words.end());  // CLI11 takes words from the back.
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::RequiredError&) {
    require_positionals(app);
    throw;
  }
  refuse_extras(app);
  return true;
}

int exit_code_of(int (*command)(const std::vector<std::string>& words), int count, char** words) {
  const int code = guarded(command, Words(words + 1, words + count));
  // What was printed has to arrive: an empty file is no result.
  if (std::cout.flush()) return code;
  log_error("cannot write to standard output (free some room where it goes, or send it elsewhere)");
  return code == kDone ? kWrongUsage : code;
}

}  // namespace spillway::cli
