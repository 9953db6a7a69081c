#include "setting_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "setting_words.h"
#include "spillway/base/error.h"
#include "spillway/base/nearest_name.h"

namespace spillway::cli {

namespace {

std::string help_of(const runtime::SettingInfo& info) {
  return message("{} [{}]", info.meaning, info.fallback);
}

[[noreturn]] void refuse_option(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty())
      for (const std::string& each : option->get_lnames()) names.push_back("--" + each);
  const std::vector<std::string_view> views(names.begin(), names.end());
  // A list of all of them says nothing of what they mean.
  if (!nearest_name(name, views))
    throw ConfigError("unknown option {} (spillway {} --help explains all)", name, app.get_name());
  throw ConfigError("unknown option {}{}", name, hint_for(name, views));
}

}  // namespace

void SettingOptions::add_to(CLI::App& app, const std::vector<std::string_view>& keys,
                            const std::vector<std::string_view>& without) {
  const auto is_among = [](const std::vector<std::string_view>& list, std::string_view key) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  for (const runtime::SettingInfo& info : runtime::setting_catalogue()) {
    if ((!keys.empty() && !is_among(keys, info.key)) || is_among(without, info.key)) continue;
    values_.push_back(std::make_unique<Value>(Value{&info, {}, false}));
    Value& value = *values_.back();
    const std::string name = "--" + std::string(info.key);
    if (info.is_switch) {
      // --verify or --verify=off; `split_run_arguments` makes the latter of two words.
      app.add_flag_function(
          name,
          [&value](std::int64_t count) {
            value.text = count > 0 ? "on" : "off";
            value.is_given = true;
          },
          help_of(info));
    } else {
      app.add_option_function<std::string>(
             name,
             [&value](const std::string& text) {
               value.text = text;
               value.is_given = true;
             },
             help_of(info))
          ->type_name(std::string(info.value))
          ->take_last();
    }
  }
}

runtime::NamedTexts SettingOptions::given() const {
  runtime::NamedTexts texts;
  for (const auto& value : values_)
    if (value->is_given) texts.emplace_back(std::string(value->info->key), value->text);
  return texts;
}

void check_options(const CLI::App& app, const std::vector<std::string>& words) {
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

}  // namespace spillway::cli
