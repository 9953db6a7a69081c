#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/file_text.h"

namespace spillway {

/// Texts under headings, compared whole with a file of the source tree when the last one is there.
/// For texts of one test; those of many tests share a file as a `GoldenPart` each.
/// With UPDATE_GOLDEN=1 they are written into that file instead, for `git diff` to show.
class GoldenText {
 public:
  explicit GoldenText(std::string path) : path_(std::move(path)) {}
  GoldenText(const GoldenText&) = delete;
  GoldenText& operator=(const GoldenText&) = delete;

  ~GoldenText() {
    if (std::getenv("UPDATE_GOLDEN") == nullptr)
      compare(lines_of(file_text(path_)));
    else
      write();
  }

  void add(const std::string& heading, const std::string& text) {
    text_ += (text_.empty() ? "== " : "\n== ") + heading + "\n" + text;
    if (!text.empty() && text.back() != '\n') text_ += '\n';
  }

  /// Of another text the lines alone that `text` lacks, and those that `text` has without a line
  /// in their place, which begins with the same label.
  void add_difference(const std::string& heading, const std::string& text,
                      const std::string& other) {
    const Lines before = lines_of(text), after = lines_of(other);
    std::string difference;
    std::set<std::string> replaced;
    for (const std::string& line : after)
      if (std::count(before.begin(), before.end(), line) == 0) replaced.insert(label_of(line));
    for (const std::string& line : before)
      if (std::count(after.begin(), after.end(), line) == 0 && !replaced.count(label_of(line)))
        difference += "- " + line + "\n";
    for (const std::string& line : after)
      if (std::count(before.begin(), before.end(), line) == 0) difference += "+ " + line + "\n";
    add(heading, difference);
  }

 private:
  using Lines = std::vector<std::string>;

  void write() const {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file << text_;
    EXPECT_TRUE(file.flush().good()) << path_ << " cannot be written";
  }

  void compare(const Lines& kept) const {
    const Lines now = lines_of(text_);
    const auto [at, other] = std::mismatch(kept.begin(), kept.end(), now.begin(), now.end());
    EXPECT_TRUE(at == kept.end() && other == now.end())
        << path_ << ':' << at - kept.begin() + 1 << ": " << (at == kept.end() ? "its end" : *at)
        << "\nis now: " << (other == now.end() ? "the end" : *other)
        << "\nIf this is meant, renew the file with UPDATE_GOLDEN=1; `git diff` shows all.";
  }

  static Lines lines_of(const std::string& text) {
    Lines lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

  static std::string label_of(const std::string& line) {
    constexpr std::size_t kWidth = 19;  // "[spillway] advice   " and the like.
    return line.substr(0, kWidth);
  }

  std::string path_, text_;
};

}  // namespace spillway
