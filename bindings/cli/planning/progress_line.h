#pragma once

#include <string>

namespace spillway::cli {

/// One line on the terminal behind standard error that renews itself, and goes at the end; nothing
/// elsewhere.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const std::string& text);
  void clear();

 private:
  const bool is_on_terminal_;
  bool is_shown_ = false;
};

}  // namespace spillway::cli
