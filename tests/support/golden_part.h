#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/file_text.h"
#include "support/golden_folder.h"

namespace spillway {

/// What is said in the test that runs, each text from a line of its own on: compared whole, at the
/// end of the test, with the part under its name of `told.txt` in the folder `texts` of its source.
/// With UPDATE_GOLDEN=1 the part is written anew instead, for `git diff` to show.
class GoldenPart {
 public:
  GoldenPart() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    name_ = std::string(test->test_suite_name()) + "." + test->name();
  }
  GoldenPart(const GoldenPart&) = delete;
  GoldenPart& operator=(const GoldenPart&) = delete;

  ~GoldenPart() {
    if (testing::Test::IsSkipped()) return;
    if (std::getenv("UPDATE_GOLDEN") == nullptr)
      EXPECT_EQ(parts_of(file_text(path_))[name_], text_)
          << path_ << ": the part " << name_
          << "\nIf this is meant, renew the file with UPDATE_GOLDEN=1.";
    else if (!testing::Test::HasFailure())
      write();
  }

  /// Stands as `word` in the file, as temporary folders do as FOLDER.
  void mask(std::string value, std::string word) {
    masks_.emplace_back(std::move(value), std::move(word));
  }
  /// What matches `pattern`, as a figure that differs from run to run, stands as `words`, in which
  /// $1 is the first group of the pattern.
  void mask(std::regex pattern, std::string words) {
    patterns_.emplace_back(std::move(pattern), std::move(words));
  }

  void add(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (text.empty()) text = "(nothing)";
    static const std::regex temporary("[^\\s'\"(,:]*/spillway-test-\\w+");
    static const std::regex rounding("(\\.\\d{6})\\d+");  // May be another one elsewhere.
    text = std::regex_replace(text, temporary, "FOLDER");
    text = std::regex_replace(text, rounding, "$1");
    for (const auto& [value, word] : masks_)
      for (std::size_t at = 0; (at = text.find(value, at)) != std::string::npos; at += word.size())
        text.replace(at, value.size(), word);
    for (const auto& [pattern, words] : patterns_) text = std::regex_replace(text, pattern, words);
    text_ += text + "\n";
  }
  void add(const std::string& label, const std::string& text) { add(label + " > " + text); }
  void add(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) add(text);
    add(std::to_string(texts.size()) + " in all");
  }

 private:
  static std::map<std::string, std::string> parts_of(const std::string& text) {
    std::map<std::string, std::string> parts;
    std::istringstream lines(text);
    std::string* part = nullptr;
    for (std::string line; std::getline(lines, line);)
      if (line.rfind("== ", 0) == 0)
        part = &parts[line.substr(3)];
      else if (part != nullptr)
        *part += line + "\n";
    for (auto& [name, kept] : parts)  // The blank line before the next heading.
      if (kept.size() > 1 && kept.compare(kept.size() - 2, 2, "\n\n") == 0) kept.pop_back();
    return parts;
  }

  /// Other tests write their parts at the same time.
  void write() const {
    const int lock = ::open(path_.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
    ASSERT_EQ(::flock(lock, LOCK_EX), 0) << path_;
    auto parts = parts_of(file_text(path_));
    parts[name_] = text_;
    std::ofstream out(path_, std::ios::binary | std::ios::trunc);
    for (const auto& [name, text] : parts)
      out << (name == parts.begin()->first ? "== " : "\n== ") << name << "\n" << text;
    EXPECT_TRUE(out.flush().good()) << path_ << " cannot be written";
    ::close(lock);
  }

  const std::string path_ = golden_file("told.txt");
  std::string name_, text_;
  std::vector<std::pair<std::string, std::string>> masks_;
  std::vector<std::pair<std::regex, std::string>> patterns_;
};

}  // namespace spillway
