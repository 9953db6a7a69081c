#include "spillway/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>

#include "spillway/base/told_errors.h"

namespace spillway {
namespace {

std::atomic<LogLevel> threshold_now{LogLevel::kWarning};
std::atomic<std::uint64_t> errors{0};

// Leaked on purpose: threads may still log while static destructors run.
spdlog::logger& logger() {
  static auto* instance = [] {
    auto* made = new spdlog::logger("spillway", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_level(spdlog::level::trace);
    made->set_pattern("[spillway] %l: %v");
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kOff: break;
  }
  return spdlog::level::off;
}

}  // namespace

void configure_log(LogLevel threshold, const std::string& rank) {
  threshold_now.store(threshold, std::memory_order_relaxed);
  logger().set_pattern(rank.empty() ? "[spillway] %l: %v" : "[spillway " + rank + "] %l: %v");
}

bool log_enabled(LogLevel level) { return level >= threshold_now.load(std::memory_order_relaxed); }

void log_line(LogLevel level, std::string_view text) {
  if (level == LogLevel::kError) errors.fetch_add(1, std::memory_order_relaxed);
  logger().log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
}

std::uint64_t errors_told() { return errors.load(std::memory_order_relaxed); }

}  // namespace spillway
