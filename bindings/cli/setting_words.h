#pragma once

#include <string>
#include <string_view>

#include "spillway/runtime/settings.h"

namespace spillway::cli {

/// The setting that an option ("--budget") stands for, or null.
const runtime::SettingInfo* setting_behind(const std::string& option);

/// Throws ConfigError for an option that takes `value` ("SIZE|PERCENT%") and lacks it: `next` is
/// the word after it, or null. A value that begins with two dashes is written behind "=".
void require_value(const std::string& option, std::string_view value, const std::string* next);

}  // namespace spillway::cli
