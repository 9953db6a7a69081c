#include "setting_words.h"

#include "spillway/base/error.h"

namespace spillway::cli {

namespace {

// "a FILE", "a SIZE, PERCENT% or auto", "one of auto, posix or ram"
std::string wanted(std::string_view value) {
  const bool is_list_of_names = value.front() >= 'a' && value.front() <= 'z';
  std::string text = is_list_of_names ? "one of " : "a ";
  for (const char letter : value) {
    if (letter == '|')
      text += ", ";
    else
      text += letter;
  }
  const auto last = text.rfind(", ");
  if (last != std::string::npos) text.replace(last, 2, " or ");
  return text;
}

}  // namespace

const runtime::SettingInfo* setting_behind(const std::string& option) {
  for (const runtime::SettingInfo& info : runtime::setting_catalogue())
    if (option == "--" + std::string(info.key)) return &info;
  return nullptr;
}

void require_value(const runtime::SettingInfo& setting, const std::string* next) {
  if (next == nullptr || next->substr(0, 2) == "--")
    throw ConfigError("--{} needs {}", setting.key, wanted(setting.value));
}

void require_values(const std::vector<std::string>& words) {
  for (std::size_t at = 0; at < words.size(); ++at) {
    const runtime::SettingInfo* setting = setting_behind(words[at]);
    if (setting == nullptr || setting->is_switch) continue;
    require_value(*setting, at + 1 < words.size() ? &words[at + 1] : nullptr);
    ++at;
  }
}

}  // namespace spillway::cli
