#include "spillway/profile/chrome_trace.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "spillway/base/shown_text.h"
#include "trace_sources.h"

namespace spillway::profile {
namespace {

/// As the reader takes it, whatever the program is called.
std::string json_text(std::string_view text) {
  return nlohmann::json(without_control_characters(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Without a leading zero, which JSON does not know.
bool is_count(std::string_view text) {
  return !text.empty() && text.size() < 20 && (text.front() != '0' || text.size() == 1) &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// The format counts microseconds; three digits keep nanoseconds.
std::string microseconds(double seconds) {
  std::array<char, std::numeric_limits<double>::max_exponent10 + 8> text{};
  std::snprintf(text.data(), text.size(), "%.3f", 1e6 * seconds);
  return text.data();
}

std::size_t number_of(std::string_view lane) {
  return static_cast<std::size_t>(std::find(kTraceLanes.begin(), kTraceLanes.end(), lane) -
                                  kTraceLanes.begin());
}

std::array<bool, kTraceLanes.size()> shown_lanes(const StepTrace& trace) {
  std::array<bool, kTraceLanes.size()> shown{};
  std::fill_n(shown.begin(), trace.has_far_tier ? kLanesOfTiers : kLanesOfOneTier, true);
  for (const TraceSpan& span : trace.spans) shown.at(number_of(span.lane)) = true;
  return shown;
}

/// Lines of the file, written as text: a long run has millions of spans, too many for a tree.
class TraceWriter {
 public:
  void begin(const StepTrace& trace) {
    process_ = std::to_string(trace.process);
    describe("process_name", 0, R"("name":)" + json_text(trace.title));
    if (trace.source != TraceSource::kUnknown)
      describe("process_labels", 0, R"("labels":)" + json_text(name_of(trace.source)));
    const std::array<bool, kTraceLanes.size()> shown = shown_lanes(trace);
    for (std::size_t lane = 0; lane < shown.size(); ++lane) {
      if (!shown[lane]) continue;
      describe("thread_name", lane + 1, R"("name":)" + json_text(kTraceLanes[lane]));
      describe("thread_sort_index", lane + 1, R"("sort_index":)" + std::to_string(lane + 1));
    }
  }

  void add(const TraceSpan& span) {
    begin_event("X", number_of(span.lane) + 1);
    text_ += R"(,"name":)" + json_text(span.name) + R"(,"ts":)" + microseconds(span.begin_seconds) +
             R"(,"dur":)" + microseconds(span.seconds);
    if (!span.facts.empty()) {
      text_ += R"(,"args":{)";
      for (const auto& [name, value] : span.facts) {
        if (text_.back() != '{') text_ += ',';
        text_ += json_text(name);
        text_ += ':';
        text_ += name == kBytesFact && is_count(value) ? value : json_text(value);
      }
      text_ += '}';
    }
    text_ += '}';
  }

  void add(const TraceCount& count) {
    begin_event("C", 0);
    std::array<char, 48> value{};
    std::snprintf(value.data(), value.size(), "%.0f", count.value);
    text_ += R"(,"name":)" + json_text(kResidentBytes) + R"(,"ts":)" +
             microseconds(count.at_seconds) + R"(,"args":{"bytes":)" + value.data() + "}}";
  }

  void add(const TraceMark& mark) {
    begin_event("i", 1);
    text_ += R"(,"s":"p","name":)" + json_text(mark.name) + R"(,"ts":)" +
             microseconds(mark.at_seconds) + "}";
  }

  void add(const TraceArrow& arrow) {
    begin_event(arrow.is_end ? "f" : "s", number_of(arrow.lane) + 1);
    if (arrow.is_end) text_ += R"(,"bp":"e")";  // To the span around it, not to the next one.
    text_ += R"(,"cat":"message","name":"message","id":)" + std::to_string(arrow.number) +
             R"(,"ts":)" + microseconds(arrow.at_seconds) + "}";
  }

  std::string finish() { return std::move(text_) + "\n]}\n"; }

 private:
  void begin_event(std::string_view phase, std::size_t lane) {
    text_ += text_.back() == '[' ? "\n" : ",\n";
    text_ += R"({"ph":")";
    text_ += phase;
    text_ += R"(","pid":)" + process_ + R"(,"tid":)" + std::to_string(lane);
  }

  void describe(std::string_view what, std::size_t lane, const std::string& args) {
    begin_event("M", lane);
    text_ += R"(,"name":)" + json_text(what) + R"(,"args":{)" + args + "}}";
  }

  std::string process_;
  std::string text_ = R"({"displayTimeUnit":"ms","traceEvents":[)";
};

}  // namespace

std::string to_chrome_trace(const StepTrace& trace) { return to_chrome_trace({&trace, 1}); }

std::string to_chrome_trace(std::span<const StepTrace> traces) {
  TraceWriter writer;
  for (const StepTrace& trace : traces) {
    writer.begin(trace);
    for (const TraceMark& mark : trace.marks) writer.add(mark);
    for (const TraceSpan& span : trace.spans) writer.add(span);
    for (const TraceArrow& arrow : trace.arrows) writer.add(arrow);
    for (const TraceCount& count : trace.resident_bytes) writer.add(count);
  }
  return writer.finish();
}

void shift(StepTrace& trace, double by) {
  for (TraceSpan& span : trace.spans) span.begin_seconds += by;
  for (TraceCount& count : trace.resident_bytes) count.at_seconds += by;
  for (TraceMark& mark : trace.marks) mark.at_seconds += by;
  for (TraceArrow& arrow : trace.arrows) arrow.at_seconds += by;
}

void keep_whole_arrows(std::span<StepTrace> traces) {
  struct Ends {
    bool begin = false, end = false;
  };
  std::unordered_map<std::uint64_t, Ends> found;
  for (const StepTrace& trace : traces)
    for (const TraceArrow& arrow : trace.arrows)
      (arrow.is_end ? found[arrow.number].end : found[arrow.number].begin) = true;
  for (StepTrace& trace : traces)
    std::erase_if(trace.arrows, [&](const TraceArrow& arrow) {
      const Ends& ends = found[arrow.number];
      return !ends.begin || !ends.end;
    });
}

}  // namespace spillway::profile
