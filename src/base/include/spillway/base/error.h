#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace spillway {

namespace detail {
inline void append_message(std::ostringstream& out, std::string_view pattern) { out << pattern; }

template <typename First, typename... Rest>
void append_message(std::ostringstream& out, std::string_view pattern, const First& first,
                    const Rest&... rest) {
  const auto hole = pattern.find("{}");
  out << pattern.substr(0, hole);
  if (hole == std::string_view::npos) return;
  out << first;
  append_message(out, pattern.substr(hole + 2), rest...);
}
}  // namespace detail

/// Fills each "{}" of `pattern` with the next argument, written by its `operator<<`.
template <typename... Args>
std::string message(std::string_view pattern, const Args&... args) {
  std::ostringstream out;
  detail::append_message(out, pattern, args...);
  return out.str();
}

/// Base of everything Spillway throws. Thrown at set-up and on the trainer's own thread only;
/// the outcome of asynchronous work is a value in its completion.
class Error : public std::runtime_error {
 public:
  template <typename... Args>
  explicit Error(std::string_view pattern, const Args&... args)
      : std::runtime_error(message(pattern, args...)) {}
};

/// A wrong option, file or environment variable.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A budget that cannot hold what one operator needs.
class BudgetError : public Error {
 public:
  using Error::Error;
};

/// A disk or file that failed, is full, or returned wrong bytes.
class IoError : public Error {
 public:
  using Error::Error;
};

/// A tensor that was dropped to be recomputed, and cannot be.
class RecomputeError : public Error {
 public:
  using Error::Error;
};

/// A plan that contradicts its profile or the machine.
class PlanError : public Error {
 public:
  using Error::Error;
};

/// A system or library that lacks what was asked for.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};

}  // namespace spillway
