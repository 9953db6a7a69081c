#include "progress_line.h"

#include <unistd.h>

#include <cstdio>

namespace spillway::cli {

namespace {
constexpr Duration kBetweenLines = std::chrono::seconds(20);
}  // namespace

bool is_watched() { return ::isatty(STDERR_FILENO) != 0; }

ProgressLine::ProgressLine() : is_on_terminal_(is_watched()) {}

ProgressLine::ProgressLine(const Clock& clock) : ProgressLine() {
  clock_ = &clock;
  last_shown_ = clock.now();
}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(const std::string& text) {
  if (!is_on_terminal_) {
    if (clock_ == nullptr) return;
    const TimePoint now = clock_->now();
    if (now - last_shown_ < kBetweenLines) return;
    last_shown_ = now;
    std::fprintf(stderr, "[spillway] %s\n", text.c_str());
    std::fflush(stderr);
    return;
  }
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  is_shown_ = true;
}

void ProgressLine::clear() {
  if (!is_shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  is_shown_ = false;
}

}  // namespace spillway::cli
