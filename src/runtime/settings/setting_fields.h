#pragma once

#include <string_view>

#include "spillway/runtime/settings/settings.h"

namespace spillway::runtime {

/// Prefix of an entry of `nvme` that is no directory.
inline constexpr std::string_view kHostMemory = "ram:";

/// A catalogue entry with the function that reads its text. The function throws ConfigError with a
/// reason only; the caller adds origin and key.
struct SettingField {
  SettingInfo info;
  void (*assign)(Settings& settings, std::string_view text);
  std::string_view (*alternatives)() = nullptr;  ///< Where `info.value` is a list of names.
};

std::span<const SettingField> setting_fields();

}  // namespace spillway::runtime
