#include "private_rank_lines.h"

#include <unistd.h>

#include <cerrno>

namespace spillway::cli {
namespace {

constexpr std::string_view kMark = "[spillway";
constexpr std::size_t kLineMax = std::size_t{1} << 16;
constexpr std::size_t kLastWords = 3;
constexpr std::size_t kFarthestLevel = 16;  // Behind a rank.

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
  std::string shown;
  if (has_told_error_) return shown;
  for (const std::string& line : last_)
    shown.append(kMark)
        .append(" ")
        .append(rank_)
        .append("] error: this rank has failed: ")
        .append(line);
  return shown;
}

void SpillwayLines::take(std::string& shown) {
  const std::size_t at = line_.find(kMark);
  if (at == std::string::npos && line_.size() > 1 && line_.rfind("frame #", 0) != 0) {
    line_.back() = '\n';
    last_.push_back(line_);
    if (last_.size() > kLastWords) last_.pop_front();
  }
  if (at != std::string::npos) {
    std::string_view line = std::string_view(line_).substr(at + kMark.size());
    has_told_error_ = has_told_error_ || line.find("] error: ") < kFarthestLevel ||
                      line.find("] fatal: ") < kFarthestLevel;
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
