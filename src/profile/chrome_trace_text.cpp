// Reads traces back that `to_chrome_trace` has written.

#include <map>

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

  StepTrace read(std::string_view text, const std::string& device) {
    const JsonText document(text, name_, JsonText::kAnyFormat);
    JsonObject root = document.root();
    if (!root.has("traceEvents")) refuse("this is no trace");
    for (JsonObject& event : root.objects("traceEvents")) {
      const auto process = static_cast<std::uint32_t>(event.count("pid", 0, ~0U));
      StepTrace& trace = traces_[process];
      trace.process = process;
      add(event, trace);
    }
    if (traces_.empty()) return {};
    if (traces_.size() == 1) return std::move(traces_.begin()->second);
    return trace_of(device);
  }

 private:
  [[noreturn]] void refuse(const char* what) const { throw ConfigError("{}: {}", name_, what); }

  static double moment(JsonObject& event, const char* key) {
    return 1e-6 * event.number(key, 0.0, kMostMicroseconds);
  }

  static std::string_view lane_of(JsonObject& event) {
    return kTraceLanes[event.count("tid", 1, kTraceLanes.size()) - 1];
  }

  StepTrace trace_of(const std::string& device) {
    StepTrace* found = nullptr;
    for (auto& [process, trace] : traces_) {
      const bool is_of_gpu = trace.title.starts_with(kGpus);
      const bool is_wanted = device.starts_with(kGpus) ? trace.title.starts_with(device + " (")
                                                       : !device.empty() && !is_of_gpu;
      if (!is_wanted) continue;
      if (found != nullptr) refuse("it holds several traces, and one is wanted");
      found = &trace;
    }
    if (found == nullptr && device.starts_with(kGpus))
      throw ConfigError("{}: it holds several traces, and none of {}", name_, device);
    if (found == nullptr) refuse("it holds several traces, and one is wanted");
    return std::move(*found);
  }

  void add(JsonObject& event, StepTrace& trace) {
    const std::string phase = event.text("ph");
    if (phase == "M") {
      const std::string what = event.text("name");
      if (what == "process_name") trace.title = event.object("args").text("name");
      if (what == "process_labels") add_source(event.object("args").text("labels"), trace);
    } else if (phase == "i") {
      trace.marks.push_back({moment(event, "ts"), event.text("name")});
    } else if (phase == "C") {
      const double bytes = event.object("args").number("bytes", 0.0, 1e18);
      trace.resident_bytes.push_back({moment(event, "ts"), bytes});
    } else if (phase == "X") {
      const std::string_view lane = lane_of(event);
      TraceSpan span{lane, event.text("name"), moment(event, "ts"), moment(event, "dur"), {}};
      trace.has_far_tier |= lane == kFarWriteOutLane || lane == kFarReadInLane;
      if (event.has("args")) span.facts = event.object("args").all_texts();
      trace.spans.push_back(std::move(span));
    } else if (phase == "s" || phase == "f") {
      const std::uint64_t number = event.count("id", 0, ~std::uint64_t{0});
      trace.arrows.push_back({number, lane_of(event), moment(event, "ts"), phase == "f"});
    } else {
      refuse("it has events of another program");
    }
  }

  static void add_source(const std::string& label, StepTrace& trace) {
    for (const auto& each : kTraceSources)
      if (each.name == label) trace.source = each.value;
  }

  static constexpr std::string_view kGpus = "cuda:";

  const std::string& name_;
  std::map<std::uint32_t, StepTrace> traces_;  ///< By process.
};

}  // namespace

StepTrace parse_chrome_trace(std::string_view text, const std::string& name,
                             const std::string& device) {
  try {
    return TraceReader(name).read(text, device);
  } catch (const ConfigError& error) {
    throw ConfigError("{}", with_next_step(error.what(), "spillway run --trace writes one"));
  }
}

}  // namespace spillway::profile
