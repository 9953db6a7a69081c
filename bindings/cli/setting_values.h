#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

/// The setting that an option ("--budget") stands for, or null.
const runtime::SettingInfo* setting_behind(const std::string& option);

/// Throws ConfigError for an option that takes `value` ("SIZE|PERCENT%") and lacks it: `next` is
/// the word after it, or null. A value that begins with two dashes is written behind "=".
void require_value(const std::string& option, std::string_view value, const std::string* next);

inline constexpr std::uint32_t kMostCount = 1'000'000;

/// The words of a list, between commas; a word may be empty.
std::vector<std::string> comma_separated(std::string_view list);

/// A whole number within limits. Throws ConfigError with option, text and limits.
std::uint32_t count_in(const char* option, const std::string& text, std::uint32_t least = 1,
                       std::uint32_t most = kMostCount);

/// A number within limits. Throws ConfigError with option, text and limits.
double number_in(const char* option, const std::string& text, double least, double most);

/// A size with its unit. Throws ConfigError with option and text.
Bytes size_in(const char* option, const std::string& text);

}  // namespace spillway::cli
