// How the programs of this folder tell what they measured: samples, and lines of figures.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

/// Seconds of a clock that never goes back.
inline double now_seconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

inline double seconds_of(const std::function<void()>& work) {
  const double start = now_seconds();
  work();
  return now_seconds() - start;
}

/// Durations, in seconds, and what they are told as.
class Samples {
 public:
  void add(double seconds) { seconds_.push_back(seconds); }
  void time(const std::function<void()>& work) { add(seconds_of(work)); }
  double at(double share) {
    if (seconds_.empty()) return 0;
    std::sort(seconds_.begin(), seconds_.end());
    return seconds_[std::min(seconds_.size() - 1,
                             static_cast<std::size_t>(share * seconds_.size()))];
  }
  std::size_t count() const { return seconds_.size(); }

 private:
  std::vector<double> seconds_;
};

/// A line of JSON on standard output, written when it ends.
class Line {
 public:
  explicit Line(const std::string& figure) : text_("{\"figure\": \"" + figure + '"') {}
  ~Line() {
    std::printf("%s}\n", text_.c_str());
    std::fflush(stdout);
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  Line& with(const char* key, const std::string& text) { return raw(key, '"' + text + '"'); }
  Line& with(const char* key, double number) {
    char shown[40];
    std::snprintf(shown, sizeof shown, "%.6g", number);
    return raw(key, shown);
  }
  Line& with(const char* key, Samples& samples) {
    const std::string name(key);
    with((name + "_us").c_str(), samples.at(0.5) * 1e6);
    with((name + "_us_p90").c_str(), samples.at(0.9) * 1e6);
    with((name + "_us_p99").c_str(), samples.at(0.99) * 1e6);
    return with((name + "_us_max").c_str(), samples.at(1) * 1e6);
  }
  Line& raw(const char* key, const std::string& value) {
    text_ += std::string(", \"") + key + "\": " + value;
    return *this;
  }

 private:
  std::string text_;
};
