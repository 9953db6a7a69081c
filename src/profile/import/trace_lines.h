#pragma once

#include <string>
#include <string_view>

namespace spillway::profile {

/// The lines of a text, with their place for errors.
class TraceLines {
 public:
  TraceLines(std::string_view text, std::string file) : rest_(text), file_(std::move(file)) {}

  /// Goes on to the next line; false behind the last one.
  bool next() {
    if (rest_.empty()) return false;
    const auto end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
    ++number_;
    return true;
  }

  std::string_view line() const { return line_; }
  std::size_t number() const { return number_; }
  /// "FILE:LINE"
  std::string where() const { return where(number_); }
  std::string where(std::size_t line) const { return file_ + ":" + std::to_string(line); }

 private:
  std::string_view rest_;
  std::string_view line_;
  std::size_t number_ = 0;
  std::string file_;
};

}  // namespace spillway::profile
