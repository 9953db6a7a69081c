#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway::profile {

/// Lanes of a step, the same for a predicted and for a measured one, so that the two can be laid on
/// top of each other.
inline constexpr std::string_view kComputeLane = "compute";
inline constexpr std::string_view kWriteOutLane = "write-out";
inline constexpr std::string_view kReadInLane = "read-in";
inline constexpr std::string_view kHostCopyLane = "host copy";
/// Transfers of a second store behind the first one.
inline constexpr std::string_view kFarWriteOutLane = "write-out to disk";
inline constexpr std::string_view kFarReadInLane = "read-in from disk";
/// Of a rank among several: what it does for a stage and a micro-batch, messages, and reductions.
inline constexpr std::string_view kActionLane = "actions";
inline constexpr std::string_view kSendLane = "send";
inline constexpr std::string_view kReceiveLane = "receive";
inline constexpr std::string_view kReductionLane = "reductions";
/// Of a device, by the clock of the host: its threads give work to the device, and wait for memory.
/// Then the compute lane is that of the device, by its own events, and of its first stream.
inline constexpr std::string_view kLaunchLane = "launches (host)";
inline constexpr std::array<std::string_view, 3> kFurtherStreamLanes{
    "compute, stream 2", "compute, stream 3", "compute, stream 4 and further"};
/// In their order; behind those of one tier those of the far one, then those of ranks and devices.
inline constexpr std::array<std::string_view, 14> kTraceLanes{
    kComputeLane,           kWriteOutLane,         kReadInLane, kHostCopyLane,
    kFarWriteOutLane,       kFarReadInLane,        kActionLane, kSendLane,
    kReceiveLane,           kReductionLane,        kLaunchLane, kFurtherStreamLanes[0],
    kFurtherStreamLanes[1], kFurtherStreamLanes[2]};
inline constexpr std::size_t kLanesOfOneTier = 4;
inline constexpr std::size_t kLanesOfTiers = 6;
inline constexpr std::string_view kResidentBytes = "resident bytes";
/// Spans of the compute lane that are no operator which runs for the first time: waits for inputs,
/// waits for room, operators that run again (with their name behind it), and the one that stands in
/// predictions for all operators that transfers slow down.
inline constexpr std::string_view kWaitSpan = "wait";
inline constexpr std::string_view kRoomWaitSpan = "wait for room";
inline constexpr std::string_view kReplayPrefix = "recomputed: ";
inline constexpr std::string_view kSlowdownSpan = "slowed down by transfers";
/// The fact of an operator that is its number in the step.
inline constexpr std::string_view kOperatorFact = "operator";
/// The fact of a transfer that is a number in the file.
inline constexpr std::string_view kBytesFact = "bytes";

/// Something that takes time. Spans of one lane do not overlap.
struct TraceSpan {
  std::string_view lane;  ///< One of those above.
  std::string name;
  double begin_seconds = 0.0;  ///< From the begin of the trace.
  double seconds = 0.0;
  std::vector<std::pair<std::string, std::string>> facts;  ///< Shown when the span is chosen.
};

/// A quantity has this value from here on.
struct TraceCount {
  double at_seconds = 0.0;
  double value = 0.0;
};

/// A moment with a name: "step 12" where that step begins, "end" where the last one ends.
struct TraceMark {
  double at_seconds = 0.0;
  std::string name;
};

/// One end of an arrow between two traces in a file, which have it under the same number: a message
/// begins here, or has come.
struct TraceArrow {
  std::uint64_t number = 0;
  std::string_view lane;  ///< There a span begins, or ends, at that moment.
  double at_seconds = 0.0;
  bool is_end = false;
};

/// Whose work a trace shows.
enum class TraceSource { kUnknown, kPrediction, kRun };

/// One step, or several in a row, as a picture over time.
struct StepTrace {
  std::string title;  ///< `predicted: net.profile.json`.
  TraceSource source = TraceSource::kUnknown;
  std::uint32_t process = 1;  ///< Traces with different numbers can be joined into one file.
  bool has_far_tier = false;  ///< Shows its lanes.
  std::vector<TraceSpan> spans;
  std::vector<TraceCount> resident_bytes;
  std::vector<TraceMark> marks;
  std::vector<TraceArrow> arrows;
};

/// The number of a rank's trace in a file with those of others: a prediction stands above the run.
constexpr std::uint32_t process_of_rank(std::uint32_t rank, TraceSource source) {
  return 2 * rank + (source == TraceSource::kRun ? 2 : 1);
}

/// Has all of it so many seconds later.
void shift(StepTrace& trace, double by);

/// Leaves out the arrows of which one end is in none of the traces.
void keep_whole_arrows(std::span<StepTrace> traces);

/// The trace as JSON in Chrome's trace event format, which chrome://tracing and Perfetto show.
/// Every lane of one tier is there, in the order above, also an empty one; others only where they
/// have spans, or where there is a far tier. The label of the process is its source. Bytes that are
/// no UTF-8 are replaced.
std::string to_chrome_trace(const StepTrace& trace);

/// Several, of different `process`, in one file: they lie on top of each other from moment 0 on.
std::string to_chrome_trace(std::span<const StepTrace> traces);

/// Reads what `to_chrome_trace` wrote of one trace; of several that one run wrote for its devices,
/// that of `device` ("cpu", or "cuda:0", whose title begins with
/// "cuda:0 ("). Throws ConfigError that begins with `name` (the file) for
/// text that is something else, was cut short, or holds several traces and none or more of that
/// device, as those of ranks.
StepTrace parse_chrome_trace(std::string_view text, const std::string& name,
                             const std::string& device = {});

}  // namespace spillway::profile
