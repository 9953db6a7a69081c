#include "private_rank_lines.h"

#include <unistd.h>

#include <cerrno>

namespace spillway::cli {
namespace {

constexpr std::string_view kMark = "[spillway";
constexpr std::size_t kLineMax = std::size_t{1} << 16;
constexpr std::size_t kLastWords = 30;
constexpr std::size_t kFarthestLevel = 16;        // Behind a rank.
constexpr std::string_view kEndOfMpi = "Abort(";  // How MPICH begins when it ends a job.
constexpr std::string_view kEndByUs = "application called MPI_Abort";
constexpr std::string_view kEnd =
    "] info: the program has ended on this rank, ";  // `tell_of_end` of Job.

/// Of a C++ stack, as LibTorch and UCX write them.
bool is_frame(std::string_view line) {
  return line.starts_with("frame #") || line.starts_with("====") ||
         line.find(") [0x") != std::string_view::npos;
}

/// Neither in a stack, nor by MPI of what Spillway has told.
bool is_told_by_program(std::string_view line) {
  return !is_frame(line) &&
         !(line.starts_with(kEndOfMpi) && line.find(kEndByUs) != std::string_view::npos);
}

}  // namespace

std::string SpillwayLines::of(std::string_view piece) {
  std::string shown;
  for (const char letter : piece) {
    if (line_.size() < kLineMax) line_ += letter;
    if (letter == '\n' || letter == '\r') take(shown);
  }
  return shown;
}

std::string SpillwayLines::rest() {
  std::string shown;
  if (!line_.empty()) line_ += '\n';
  take(shown);
  return shown;
}

std::string SpillwayLines::last_words() const {
  return has_told_error_ ? std::string() : last_lines("] error: this rank has failed: ");
}

std::string SpillwayLines::last_lines(std::string_view beginning) const {
  std::string shown;
  for (const std::string& line : last_)
    shown.append(kMark).append(" ").append(rank_).append(beginning).append(line);
  return shown;
}

void SpillwayLines::take(std::string& shown) {
  const std::size_t at = line_.find(kMark);
  if (at == std::string::npos && line_.size() > 1 && is_told_by_program(line_)) {
    line_.back() = '\n';
    last_.push_back(line_);
    if (last_.size() > kLastWords) last_.pop_front();
    if (line_.starts_with(kEndOfMpi)) {
      shown.append(last_words());
      has_told_error_ = true;
    }
  }
  if (at != std::string::npos) {
    std::string_view line = std::string_view(line_).substr(at + kMark.size());
    const bool is_error =
        line.find("] error: ") < kFarthestLevel || line.find("] fatal: ") < kFarthestLevel;
    const bool is_end = line.find(kEnd) < kFarthestLevel;
    if (is_end && !has_told_error_) shown.append(last_lines("] info: this rank said last: "));
    has_told_error_ = has_told_error_ || is_error || is_end;
    // The log of the core has the rank already.
    if (line.rfind("]", 0) == 0) shown.append(kMark).append(" ").append(rank_).append(line);
    if (line.rfind(" ", 0) == 0) shown.append(kMark).append(line);
    if (!shown.empty() && shown.back() == '\r') shown.back() = '\n';
  }
  line_.clear();
}

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace spillway::cli
