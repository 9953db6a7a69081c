// Reads traces back that `to_chrome_trace` has written.

#include "spillway/base/error.h"
#include "spillway/base/json_reader.h"
#include "spillway/base/shown_text.h"
#include "spillway/profile/chrome_trace.h"
#include "trace_sources.h"

namespace spillway::profile {
namespace {

constexpr double kMostMicroseconds = 1e15;  // Thirty years.

class TraceReader {
 public:
  explicit TraceReader(const std::string& name) : name_(name) {}

  StepTrace read(std::string_view text) {
    const JsonText document(text, name_, JsonText::kAnyFormat);
    JsonObject root = document.root();
    if (!root.has("traceEvents")) refuse("this is no trace");
    bool is_first = true;
    for (JsonObject& event : root.objects("traceEvents")) {
      const auto process = static_cast<std::uint32_t>(event.count("pid", 0, ~0U));
      if (is_first) trace_.process = process;
      is_first = false;
      if (process != trace_.process) refuse("it holds several traces, and one is wanted");
      add(event);
    }
    return std::move(trace_);
  }

 private:
  [[noreturn]] void refuse(const char* what) const { throw ConfigError("{}: {}", name_, what); }

  static double moment(JsonObject& event, const char* key) {
    return 1e-6 * event.number(key, 0.0, kMostMicroseconds);
  }

  static std::string_view lane_of(JsonObject& event) {
    return kTraceLanes[event.count("tid", 1, kTraceLanes.size()) - 1];
  }

  void add(JsonObject& event) {
    const std::string phase = event.text("ph");
    if (phase == "M") {
      const std::string what = event.text("name");
      if (what == "process_name") trace_.title = event.object("args").text("name");
      if (what == "process_labels") add_source(event.object("args").text("labels"));
    } else if (phase == "i") {
      trace_.marks.push_back({moment(event, "ts"), event.text("name")});
    } else if (phase == "C") {
      const double bytes = event.object("args").number("bytes", 0.0, 1e18);
      trace_.resident_bytes.push_back({moment(event, "ts"), bytes});
    } else if (phase == "X") {
      const std::string_view lane = lane_of(event);
      TraceSpan span{lane, event.text("name"), moment(event, "ts"), moment(event, "dur"), {}};
      trace_.has_far_tier |= lane == kFarWriteOutLane || lane == kFarReadInLane;
      if (event.has("args")) span.facts = event.object("args").all_texts();
      trace_.spans.push_back(std::move(span));
    } else if (phase == "s" || phase == "f") {
      const std::uint64_t number = event.count("id", 0, ~std::uint64_t{0});
      trace_.arrows.push_back({number, lane_of(event), moment(event, "ts"), phase == "f"});
    } else {
      refuse("it has events of another program");
    }
  }

  void add_source(const std::string& label) {
    for (const auto& each : kTraceSources)
      if (each.name == label) trace_.source = each.value;
  }

  const std::string& name_;
  StepTrace trace_;
};

}  // namespace

StepTrace parse_chrome_trace(std::string_view text, const std::string& name) {
  try {
    return TraceReader(name).read(text);
  } catch (const ConfigError& error) {
    throw ConfigError("{}", with_next_step(error.what(), "spillway run --trace writes one"));
  }
}

}  // namespace spillway::profile
