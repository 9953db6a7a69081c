#include "trace_exchange.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "first_rank.h"
#include "spillway/base/error.h"

namespace spillway::split {
namespace {

using profile::StepTrace;
using runtime::RanksTrace;
using runtime::RecordedTrace;

constexpr int kQuestions = 16;
/// Three steps of a large model take some MiB.
constexpr std::size_t kMostText = std::size_t{1} << 30;

/// What a rank says of its trace before it sends that.
struct Header {
  enum class State : std::uint8_t { kSent, kNoWholeStep, kTooLarge };
  State state = State::kSent;
  std::int64_t begin = 0;  ///< In nanoseconds of its clock.
  std::uint64_t size = 0;  ///< Bytes of the text.
};

/// How another clock differs from that of the first rank.
struct ClockOffset {
  Duration ahead{};
  Duration uncertainty = Duration::max();
};

std::int64_t count(TimePoint at) { return at.time_since_epoch().count(); }

/// A rank of the job, and the messages about its trace.
class Peer {
 public:
  Peer(transport::Transport& transport, pipeline::Job& job, Rank rank)
      : transport_(transport), job_(job), rank_(rank) {}

  void send(transport::Tag tag, device::DeviceSpan bytes) {
    wait(transport_.send(rank_, tag, bytes));
  }
  void receive(transport::Tag tag, device::DeviceSpan bytes) {
    wait(transport_.receive(rank_, tag, bytes));
  }

  ClockOffset ask_clock(const Clock& clock) {
    ClockOffset best;
    for (int i = 0; i < kQuestions; ++i) {
      std::int64_t theirs = 0;
      const device::Event answer =
          transport_.receive(rank_, kTraceAnswer, device::host_span_of(theirs));
      std::uint8_t question = 0;
      const TimePoint asked = clock.now();
      const device::Event sent =
          transport_.send(rank_, kTraceQuestion, device::host_span_of(question));
      wait(answer);
      const Duration half = (clock.now() - asked) / 2;
      wait(sent);
      if (half < best.uncertainty) best = {Duration(theirs - count(asked + half)), half};
    }
    return best;
  }

  void tell_clock(const Clock& clock) {
    for (int i = 0; i < kQuestions; ++i) {
      std::uint8_t question = 0;
      receive(kTraceQuestion, device::host_span_of(question));
      std::int64_t now = count(clock.now());
      send(kTraceAnswer, device::host_span_of(now));
    }
  }

 private:
  void wait(const device::Event& event) {
    job_.wait(event, rank_, [] { return std::string("the trace of a rank at the end"); });
  }

  transport::Transport& transport_;
  pipeline::Job& job_;
  const Rank rank_;
};

void shift(StepTrace& trace, double by) {
  for (profile::TraceSpan& span : trace.spans) span.begin_seconds += by;
  for (profile::TraceCount& count : trace.resident_bytes) count.at_seconds += by;
  for (profile::TraceMark& mark : trace.marks) mark.at_seconds += by;
  for (profile::TraceArrow& arrow : trace.arrows) arrow.at_seconds += by;
}

/// A trace, and when it begins by the clock of the first rank.
struct Placed {
  StepTrace trace;
  TimePoint begin;
};

std::string bytes_of(Peer& peer, std::size_t size) {
  std::string text(size, '\0');
  peer.receive(kTraceText, device::host_span_of_all(text));
  return text;
}

void give(Peer& first, const RecordedTrace& mine, const Clock& clock) {
  first.tell_clock(clock);
  Header header;
  header.begin = count(mine.begin);
  std::string text;
  if (mine.has_whole_step) {
    text = profile::to_chrome_trace(mine.trace);
    if (text.size() > kMostText) header.state = Header::State::kTooLarge;
    header.size = text.size();
  } else {
    header.state = Header::State::kNoWholeStep;
  }
  first.send(kTraceHeader, device::host_span_of(header));
  if (header.state != Header::State::kSent) return;
  first.send(kTraceText, device::host_span_of_all(text));
}

/// None: the remarks say why.
std::optional<Placed> take(Peer& peer, std::uint32_t rank, const Clock& clock, Duration& uncertain,
                           std::string& remarks) {
  const ClockOffset offset = peer.ask_clock(clock);
  Header header;
  peer.receive(kTraceHeader, device::host_span_of(header));
  if (header.state == Header::State::kNoWholeStep) {
    remarks += message("; rank {} has no whole step", rank);
    return std::nullopt;
  }
  if (header.state == Header::State::kTooLarge) {
    remarks += message("; that of rank {} is left out with {}", rank, Bytes(header.size));
    return std::nullopt;
  }
  const std::string text = bytes_of(peer, header.size);
  uncertain = std::max(uncertain, offset.uncertainty);
  return Placed{profile::parse_chrome_trace(text, message("the trace of rank {}", rank)),
                TimePoint(Duration(header.begin)) - offset.ahead};
}

RanksTrace joined(std::vector<Placed> placed, std::string summary) {
  RanksTrace all;
  all.summary = std::move(summary);
  TimePoint begin = placed.front().begin;
  for (const Placed& one : placed) begin = std::min(begin, one.begin);
  for (Placed& one : placed) {
    shift(one.trace, seconds(one.begin - begin));
    all.traces.push_back(std::move(one.trace));
  }
  profile::keep_whole_arrows(all.traces);
  return all;
}

}  // namespace

RanksTrace gather_traces(transport::Transport& transport, pipeline::Job& job, RecordedTrace mine,
                         const Clock& clock) {
  if (transport.rank() != kFirst) {
    Peer first(transport, job, kFirst);
    give(first, mine, clock);
    return {};
  }
  std::string remarks;
  Duration uncertain{};
  std::vector<Placed> placed;
  for (std::uint32_t rank = 1; rank < transport.ranks(); ++rank) {
    Peer peer(transport, job, Rank(rank));
    try {
      if (auto one = take(peer, rank, clock, uncertain, remarks)) placed.push_back(std::move(*one));
    } catch (const Error& error) {
      remarks += message("; that of rank {} is missing: {}", rank, error.what());
    }
  }
  std::string summary =
      message("{}; {} of {} ranks, whose clocks agree to {} us", mine.summary, placed.size() + 1,
              transport.ranks(), std::chrono::ceil<std::chrono::microseconds>(uncertain).count());
  placed.insert(placed.begin(), Placed{std::move(mine.trace), mine.begin});
  return joined(std::move(placed), summary + remarks);
}

}  // namespace spillway::split
