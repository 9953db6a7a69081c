#include "spillway/transport/survey/link_survey.h"

#include <algorithm>
#include <optional>

#include "spillway/base/median.h"
#include "waited.h"

namespace spillway::transport {
namespace {

using survey::kFirst;
using survey::Topic;

/// What the first large message shows of a link, of which the others' size follows.
constexpr Bytes kFirstLoad = 64_KiB;

std::int64_t nanoseconds(const Clock& clock) { return clock.now().time_since_epoch().count(); }

/// The ranks of each host, in order of their first ones.
std::vector<std::vector<std::uint32_t>> ranks_by_host(const std::vector<std::string>& hosts) {
  std::vector<std::vector<std::uint32_t>> all;
  for (std::uint32_t rank = 0; rank < hosts.size(); ++rank) {
    const auto known = std::find_if(all.begin(), all.end(), [&](const auto& ranks) {
      return hosts[ranks.front()] == hosts[rank];
    });
    if (known == all.end())
      all.push_back({rank});
    else
      known->push_back(rank);
  }
  return all;
}

/// One end of a pair.
class PairSurvey {
 public:
  PairSurvey(Transport& transport, Rank peer, const SurveyClocks& clocks,
             const SurveyOptions& options)
      : transport_(transport),
        peer_(peer),
        clocks_(clocks),
        options_(options),
        out_(options.largest.count()),
        in_(options.largest.count()) {}

  /// This rank asks, and the other one answers.
  MeasuredLink ask() {
    MeasuredLink link;
    link.from = transport_.rank().value();
    link.to = peer_.value();
    ask_pings(link);
    std::uint64_t size = load_size(ask_load(std::min(kFirstLoad, options_.largest).count()));
    survey::send_now(transport_, peer_, Topic::kSize, device::host_span_of(size));
    std::vector<double> ways;
    for (std::uint32_t i = 0; i < options_.trips; ++i) ways.push_back(ask_load(size));
    // Less than the latency: a clock that is too coarse for this link.
    const double way = median(ways);
    const double moving = way > link.latency_seconds ? way - link.latency_seconds : way;
    link.rate = TransferRate(static_cast<double>(size) / std::max(moving, 1e-9));
    return link;
  }

  void answer() {
    // One more than is counted: whoever is late to the pair makes the first one slow.
    for (std::uint32_t i = 0; i <= options_.pings; ++i) {
      std::int64_t time = 0;
      survey::receive_now(transport_, peer_, Topic::kPing, device::host_span_of(time));
      time = nanoseconds(clocks_.wall);
      survey::send_now(transport_, peer_, Topic::kPing, device::host_span_of(time));
    }
    answer_load(std::min(kFirstLoad, options_.largest).count());
    std::uint64_t size = 0;
    survey::receive_now(transport_, peer_, Topic::kSize, device::host_span_of(size));
    for (std::uint32_t i = 0; i < options_.trips; ++i) answer_load(size);
  }

 private:
  void ask_pings(MeasuredLink& link) {
    std::vector<double> ways;
    std::optional<double> fastest;
    for (std::uint32_t i = 0; i <= options_.pings; ++i) {
      std::int64_t theirs = 0;
      const device::Event answered =
          transport_.receive(peer_, survey::tag_of(Topic::kPing), device::host_span_of(theirs));
      const std::int64_t mine = nanoseconds(clocks_.wall);
      std::int64_t sent = mine;
      const TimePoint start = clocks_.steady.now();
      const device::Event taken =
          transport_.send(peer_, survey::tag_of(Topic::kPing), device::host_span_of(sent));
      survey::wait_for(answered, peer_);
      const double way = seconds(clocks_.steady.now() - start) / 2;
      survey::wait_for(taken, peer_);
      if (i == 0) continue;
      ways.push_back(way);
      if (fastest && *fastest <= way) continue;
      fastest = way;
      link.clock_error_seconds = way;
      link.clock_offset_seconds = static_cast<double>(theirs - mine) * 1e-9 - way;
    }
    link.latency_seconds = median(ways);
  }

  /// Seconds of a message of so many bytes, each way.
  double ask_load(std::uint64_t size) {
    const TimePoint start = clocks_.steady.now();
    const device::Event answered =
        transport_.receive(peer_, survey::tag_of(Topic::kLoad), span_of(in_, size));
    const device::Event taken =
        transport_.send(peer_, survey::tag_of(Topic::kLoad), span_of(out_, size));
    survey::wait_for(answered, peer_);
    const double way = seconds(clocks_.steady.now() - start) / 2;
    survey::wait_for(taken, peer_);
    return way;
  }

  void answer_load(std::uint64_t size) {
    survey::receive_now(transport_, peer_, Topic::kLoad, span_of(in_, size));
    survey::send_now(transport_, peer_, Topic::kLoad, span_of(out_, size));
  }

  /// So many bytes that they pass in the longest trip, by what the first load has taken.
  std::uint64_t load_size(double first_seconds) const {
    const auto least = static_cast<double>(std::min(kFirstLoad, options_.largest).count());
    const auto most = static_cast<double>(options_.largest.count());
    const double fitting = least * seconds(options_.longest_trip) / std::max(first_seconds, 1e-9);
    return static_cast<std::uint64_t>(std::clamp(fitting, least, most));
  }

  static device::DeviceSpan span_of(std::vector<std::byte>& bytes, std::uint64_t size) {
    return device::host_span(bytes.data(), Bytes(size));
  }

  Transport& transport_;
  const Rank peer_;
  const SurveyClocks clocks_;
  const SurveyOptions& options_;
  std::vector<std::byte> out_, in_;
};

/// Each rank is the first of the pairs that it has measured, and tells the first rank of them.
std::vector<MeasuredLink> gathered(Transport& transport,
                                   const std::vector<std::vector<RankPair>>& rounds,
                                   const std::vector<MeasuredLink>& mine) {
  std::vector<MeasuredLink> all = mine;
  std::size_t told = 0;
  for (const auto& round : rounds)
    for (const RankPair& pair : round) {
      const Rank teller(pair.first);
      if (teller == kFirst) continue;
      MeasuredLink link;
      if (transport.rank() == teller) {
        link = mine[told++];
        survey::send_now(transport, kFirst, Topic::kLinks, device::host_span_of(link));
      } else if (transport.rank() == kFirst) {
        survey::receive_now(transport, teller, Topic::kLinks, device::host_span_of(link));
        all.push_back(link);
      }
    }
  if (transport.rank() != kFirst) return {};
  std::sort(all.begin(), all.end(), [](const MeasuredLink& a, const MeasuredLink& b) {
    return RankPair(a.from, a.to) < RankPair(b.from, b.to);
  });
  return all;
}

}  // namespace

std::vector<std::vector<RankPair>> survey_rounds(const std::vector<std::string>& hosts) {
  const auto by_host = ranks_by_host(hosts);
  std::size_t most = 0;
  for (const auto& ranks : by_host) most = std::max(most, ranks.size());
  // The last pair of a host first: a rank comes to its earlier pair when the later one is done, so
  // that nothing else moves on the host, and the first rank, which goes on to other hosts, is done
  // last.
  std::vector<std::vector<RankPair>> rounds;
  for (std::size_t last = most; last-- > 1;) {
    rounds.emplace_back();
    for (const auto& ranks : by_host)
      if (last < ranks.size()) rounds.back().emplace_back(ranks[last - 1], ranks[last]);
  }
  if (by_host.size() == 1) return rounds;
  // Hosts on a ring of which one stands still; what has no partner rests.
  const std::size_t places = by_host.size() + by_host.size() % 2;
  for (std::size_t turn = 0; turn + 1 < places; ++turn) {
    rounds.emplace_back();
    for (std::size_t i = 0; i < places / 2; ++i) {
      const std::size_t ring = places - 1;
      const std::size_t a = i == 0 ? ring : (turn + i) % ring;
      const std::size_t b = (turn + ring - i) % ring;
      if (std::max(a, b) >= by_host.size()) continue;
      rounds.back().emplace_back(std::minmax(by_host[a].front(), by_host[b].front()));
    }
  }
  return rounds;
}

std::vector<MeasuredLink> survey_links(Transport& transport, const std::vector<std::string>& hosts,
                                       const SurveyClocks& clocks, const SurveyOptions& options) {
  const auto rounds = survey_rounds(hosts);
  const std::uint32_t rank = transport.rank().value();
  std::vector<MeasuredLink> mine;
  for (const auto& round : rounds)
    for (const auto& [from, to] : round) {
      if (rank == from) mine.push_back(PairSurvey(transport, Rank(to), clocks, options).ask());
      if (rank == to) PairSurvey(transport, Rank(from), clocks, options).answer();
    }
  return gathered(transport, rounds, mine);
}

}  // namespace spillway::transport
