#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <string>

#include "spillway/planner/cluster/job_simulation.h"

namespace spillway::planner {
namespace {

constexpr std::array<const char*, 5> kLanes{"compute", "messages", "to the host", "from the host",
                                            "reductions"};

/// Three digits behind the point, however many before it.
std::string microseconds(double seconds) {
  constexpr std::size_t kLongest = std::numeric_limits<double>::max_exponent10 + 8;
  std::array<char, kLongest> digits{};
  std::snprintf(digits.data(), digits.size(), "%.3f", 1e6 * seconds);
  return digits.data();
}

/// Microseconds, as the format wants them. Names are of digits and plain letters: nothing to
/// escape.
void append_span(std::string& text, const JobSpan& span) {
  text += R"({"ph":"X","pid":)";
  text += std::to_string(span.rank) + ",\"tid\":" + std::to_string(static_cast<int>(span.lane)) +
          ",\"ts\":" + microseconds(span.start_seconds) +
          ",\"dur\":" + microseconds(span.end_seconds - span.start_seconds) + ",\"name\":\"" +
          to_string(span.action) + "\"},\n";
}

}  // namespace

std::string to_chrome_trace(const JobTiming& timing) {
  std::string text = "{\"traceEvents\":[\n";
  std::uint32_t ranks = 0;
  for (const JobSpan& span : timing.spans) {
    append_span(text, span);
    ranks = std::max(ranks, span.rank + 1);
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::string process = std::to_string(rank);
    text += R"({"ph":"M","name":"process_name","pid":)" + process + R"(,"args":{"name":"rank )" +
            process + "\"}},\n";
    for (std::size_t lane = 0; lane < kLanes.size(); ++lane)
      text += R"({"ph":"M","name":"thread_name","pid":)" + process +
              ",\"tid\":" + std::to_string(lane) + R"(,"args":{"name":")" + kLanes[lane] +
              "\"}},\n";
  }
  // The last entry has no comma behind it.
  text += R"({"ph":"M","name":"trace","pid":0,"args":{}})";
  return text + "\n]}\n";
}

}  // namespace spillway::planner
