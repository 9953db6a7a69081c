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

/// What a rank says before it sends its traces.
struct Header {
  std::uint64_t traces = 0;
  std::uint64_t ranks = 0;
  std::int64_t uncertainty = 0;  ///< Nanoseconds.
  std::uint64_t remarks = 0;     ///< Bytes of the text.
};
struct TraceHeader {
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

  /// The next piece of its traces, of which both count.
  void send(device::DeviceSpan bytes) { send(next_piece(), bytes); }
  void receive(device::DeviceSpan bytes) { receive(next_piece(), bytes); }

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
  transport::Tag next_piece() {
    return {transport::Stream::kControl, kFirstTracePiece + pieces_++};
  }
  void send(transport::Tag tag, device::DeviceSpan bytes) {
    wait(transport_.send(rank_, tag, bytes));
  }
  void receive(transport::Tag tag, device::DeviceSpan bytes) {
    wait(transport_.receive(rank_, tag, bytes));
  }
  void wait(const device::Event& event) {
    job_.wait(event, rank_, [] { return std::string("the trace of a rank at the end"); });
  }

  transport::Transport& transport_;
  pipeline::Job& job_;
  const Rank rank_;
  std::uint64_t pieces_ = 0;
};

void give(Peer& first, TracesOfRanks& mine, const Clock& clock) {
  first.tell_clock(clock);
  std::vector<std::pair<TraceHeader, std::string>> texts;
  for (const TracesOfRanks::Placed& one : mine.traces) {
    std::string text = profile::to_chrome_trace(one.trace);
    if (text.size() > kMostText) {
      mine.remarks += message("; {} is left out with {}", one.trace.title, Bytes(text.size()));
      continue;
    }
    texts.push_back({{count(one.begin), text.size()}, std::move(text)});
  }
  Header header{texts.size(), mine.ranks, mine.uncertainty.count(), mine.remarks.size()};
  first.send(device::host_span_of(header));
  if (header.remarks > 0) first.send(device::host_span_of_all(mine.remarks));
  for (auto& [of_one, text] : texts) {
    first.send(device::host_span_of(of_one));
    first.send(device::host_span_of_all(text));
  }
}

std::string text_of(Peer& peer, std::size_t size) {
  std::string text(size, '\0');
  if (size > 0) peer.receive(device::host_span_of_all(text));
  return text;
}

void take(Peer& peer, const std::string& name, const Clock& clock, TracesOfRanks& all) {
  const ClockOffset offset = peer.ask_clock(clock);
  Header header;
  peer.receive(device::host_span_of(header));
  all.remarks += text_of(peer, header.remarks);
  for (std::uint64_t i = 0; i < header.traces; ++i) {
    TraceHeader of_one;
    peer.receive(device::host_span_of(of_one));
    const std::string text = text_of(peer, of_one.size);
    all.traces.push_back({profile::parse_chrome_trace(text, message("the trace of {}", name)),
                          TimePoint(Duration(of_one.begin)) - offset.ahead});
    all.uncertainty = std::max(all.uncertainty, offset.uncertainty + Duration(header.uncertainty));
  }
  all.ranks += header.ranks;
}

}  // namespace

TracesOfRanks traces_of(std::vector<RecordedTrace> mine, const std::string& name) {
  TracesOfRanks traces;
  if (!mine.front().has_whole_step) traces.remarks = message("; {} has no whole step", name);
  for (RecordedTrace& one : mine)
    if (one.has_whole_step) traces.traces.push_back({std::move(one.trace), one.begin});
  traces.ranks = traces.traces.empty() ? 0 : 1;
  return traces;
}

void gather_traces(transport::Transport& transport, pipeline::Job& job, TracesOfRanks& traces,
                   const std::function<std::string(Rank)>& name_of, const Clock& clock) {
  if (transport.rank() != kFirst) {
    Peer first(transport, job, kFirst);
    give(first, traces, clock);
    traces = {};
    return;
  }
  for (std::uint32_t rank = 1; rank < transport.ranks(); ++rank) {
    Peer peer(transport, job, Rank(rank));
    try {
      take(peer, name_of(Rank(rank)), clock, traces);
    } catch (const Error& error) {
      traces.remarks += message("; that of {} is missing: {}", name_of(Rank(rank)), error.what());
    }
  }
}

RanksTrace joined(TracesOfRanks traces, const std::string& summary, std::uint32_t ranks) {
  RanksTrace all;
  all.summary = message(
      "{}; {} of {} ranks, whose clocks agree to {} us{}", summary, traces.ranks, ranks,
      std::chrono::ceil<std::chrono::microseconds>(traces.uncertainty).count(), traces.remarks);
  TimePoint begin = TimePoint::max();
  for (const TracesOfRanks::Placed& one : traces.traces) begin = std::min(begin, one.begin);
  for (TracesOfRanks::Placed& one : traces.traces) {
    shift(one.trace, seconds(one.begin - begin));
    all.traces.push_back(std::move(one.trace));
  }
  profile::keep_whole_arrows(all.traces);
  return all;
}

}  // namespace spillway::split
