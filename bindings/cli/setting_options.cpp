#include "setting_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "spillway/base/error.h"
#include "spillway/base/nearest_name.h"

namespace spillway::cli {

namespace {

std::string help_of(const runtime::SettingInfo& info) {
  return message("{} [{}]", info.meaning, info.fallback);
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

void refuse_extras(const CLI::App& app) {
  const auto extras = app.remaining();
  if (extras.empty()) return;
  const std::string name = extras.front().substr(0, extras.front().find('='));
  if (name.empty() || name.front() != '-')
    throw ConfigError("unexpected argument '{}' (see spillway {} --help)", name, app.get_name());
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& each : option->get_lnames()) names.push_back("--" + each);
  const std::vector<std::string_view> views(names.begin(), names.end());
  throw ConfigError("unknown option {}{}", name, hint_for(name, views));
}

}  // namespace spillway::cli
