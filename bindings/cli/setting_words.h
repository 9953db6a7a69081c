#pragma once

#include <string>
#include <vector>

#include "spillway/runtime/settings.h"

namespace spillway::cli {

/// The setting that an option ("--budget") stands for, or null.
const runtime::SettingInfo* setting_behind(const std::string& option);

/// Throws ConfigError for the option of a setting whose value is missing: `next` is the word after
/// it, or null. A value that begins with two dashes is written behind "=".
void require_value(const runtime::SettingInfo& setting, const std::string* next);

/// The same for all words of a command without a program.
void require_values(const std::vector<std::string>& words);

}  // namespace spillway::cli
