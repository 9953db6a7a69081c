#pragma once

#include <string>

#include "spillway/base/clock.h"

namespace spillway::cli {

/// Whether standard error is a terminal, where a person looks on.
bool is_watched();

/// What a long command is at: one line on the terminal behind standard error that renews itself,
/// and goes at the end.
class ProgressLine {
 public:
  ProgressLine();  ///< Nothing elsewhere.
  /// Elsewhere a line of its own every 20 seconds or more. `clock` outlives it.
  explicit ProgressLine(const Clock& clock);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& text);
  void clear();

 private:
  const bool is_on_terminal_;
  const Clock* clock_ = nullptr;  ///< Null: nothing is shown elsewhere.
  TimePoint last_shown_;
  bool is_shown_ = false;
};

}  // namespace spillway::cli
