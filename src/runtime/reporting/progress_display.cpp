#include "spillway/runtime/reporting/progress_display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "spillway/runtime/reporting/summary.h"

namespace spillway::runtime {
namespace {

constexpr double kSecondsBetweenLines = 5.0;

/// Columns of the terminal that progress is shown on.
std::size_t terminal_width() {
  winsize size{};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return is_known ? size.ws_col - 1U : 79U;
}

}  // namespace

ProgressDisplay::ProgressDisplay(bool is_shown, const Clock& clock)
    : is_shown_(is_shown),
      shares_terminal_(::isatty(STDERR_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1),
      clock_(clock),
      last_shown_(clock.now()) {}

void ProgressDisplay::show(Duration step, const swap::SwapStatistics& memory,
                           std::span<const DeviceCounts> devices) {
  if (!is_shown_) return;
  const std::lock_guard lock(mutex_);
  ++steps_;
  const TimePoint now = clock_.now();
  const double passed = seconds(now - last_shown_);
  if (shares_terminal_ && passed < kSecondsBetweenLines) return;
  last_shown_ = now;
  Progress progress;
  progress.step = steps_.load();
  progress.step_seconds = seconds(step);
  progress.resident = memory.counted;
  progress.spilled = memory.store.extents_in_use;
  Bytes read = memory.store.read;
  Bytes written = memory.store.written;
  for (const DeviceCounts& each : devices) {
    progress.on_devices.emplace_back(each.device, each.memory.counted);
    progress.spilled += each.memory.store.extents_in_use;
    read += each.memory.store.read;
    written += each.memory.store.written;
  }
  if (passed > 0.0) {
    progress.read = TransferRate(static_cast<double>((read - last_read_).count()) / passed);
    progress.write = TransferRate(static_cast<double>((written - last_written_).count()) / passed);
  }
  last_read_ = read;
  last_written_ = written;
  // A line that stays open would run into what the program prints on the same terminal.
  const char* const format = shares_terminal_ ? "%s\n" : "\r%s\033[K";
  std::fprintf(stderr, format, progress_line(progress, terminal_width()).c_str());
  std::fflush(stderr);
}

void ProgressDisplay::end_line() {
  // Without the mutex: whoever holds it may be a thread that will never run again.
  if (is_shown_ && !shares_terminal_ && steps_.load() > 0) std::fputs("\n", stderr);
}

}  // namespace spillway::runtime
