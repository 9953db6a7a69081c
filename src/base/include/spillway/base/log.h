#pragma once

#include <string>
#include <string_view>

#include "spillway/base/error.h"

namespace spillway {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Sets what reaches stderr (default kWarning) and the rank shown in front of each line
/// (default: none). Call before the first thread of Spillway starts.
void configure_log(LogLevel threshold, const std::string& rank = {});

/// Whether a line of this level would be written; ask before building expensive text.
bool log_enabled(LogLevel level);

/// Writes one line "[spillway] level: text" (with the rank when there is one). Any thread. Must not
/// be called while a lock is held that serving a memory fault needs.
void log_line(LogLevel level, std::string_view text);

template <typename... Args>
void log_debug(std::string_view pattern, const Args&... args) {
  if (log_enabled(LogLevel::kDebug)) log_line(LogLevel::kDebug, message(pattern, args...));
}
template <typename... Args>
void log_info(std::string_view pattern, const Args&... args) {
  if (log_enabled(LogLevel::kInfo)) log_line(LogLevel::kInfo, message(pattern, args...));
}
template <typename... Args>
void log_warning(std::string_view pattern, const Args&... args) {
  if (log_enabled(LogLevel::kWarning)) log_line(LogLevel::kWarning, message(pattern, args...));
}
template <typename... Args>
void log_error(std::string_view pattern, const Args&... args) {
  if (log_enabled(LogLevel::kError)) log_line(LogLevel::kError, message(pattern, args...));
}

}  // namespace spillway
