#include "facts.h"

#include <algorithm>

#include "packed.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"
#include "spillway/pipeline/agreement/process_facts.h"

namespace spillway::pipeline {
namespace {

using transport::Stream;
using transport::Tag;
using transport::Transport;

constexpr std::size_t kMostShown = 60;    ///< Bytes of a value in a sentence.
constexpr std::size_t kShownBefore = 16;  ///< Of these, at most, before the first difference.

Packed packed(const JobFacts& facts) {
  Packer packer;
  packer.add(facts.size());
  for (const auto& [name, value] : facts) {
    packer.add(name);
    packer.add(value);
  }
  return packer.take();
}

JobFacts unpacked(const Packed& bytes) {
  Unpacker unpacker(bytes);
  JobFacts facts(unpacker.number());
  for (auto& [name, value] : facts) {
    name = unpacker.text();
    value = unpacker.text();
  }
  return facts;
}

void wait_for(const device::Event& event, Rank peer) {
  const device::Outcome outcome = event.wait();
  if (!outcome.succeeded())
    throw transport::TransportError("rank {} was lost at the start of the job: {}", peer,
                                    outcome.error);
}

/// Two messages: a size, and as many bytes.
void send(Transport& transport, Rank to, std::uint64_t number, Packed& bytes) {
  std::uint64_t size = bytes.size();
  const device::DeviceSpan size_span = device::host_span_of(size);
  const device::Event size_sent = transport.send(to, {Stream::kControl, number}, size_span);
  const device::Event sent = transport.send(to, {Stream::kControl, number + 1}, span_of(bytes));
  wait_for(size_sent, to);
  wait_for(sent, to);
}

/// `watch` sees that its first message comes.
Packed receive(
    Transport& transport, Rank from, std::uint64_t number,
    const std::function<void(const device::Event&)>& watch = [](const auto&) {}) {
  std::uint64_t size = 0;
  const device::DeviceSpan size_span = device::host_span_of(size);
  const device::Event received = transport.receive(from, {Stream::kControl, number}, size_span);
  watch(received);
  wait_for(received, from);
  Packed bytes(size);
  wait_for(transport.receive(from, {Stream::kControl, number + 1}, span_of(bytes)), from);
  return bytes;
}

std::optional<std::string> value_of(const JobFacts& facts, const std::string& name) {
  const auto at = std::find_if(facts.begin(), facts.end(),
                               [&](const auto& fact) { return fact.first == name; });
  return at == facts.end() ? std::nullopt : std::optional(at->second);
}

/// In quotes, and only what is near its first difference from `other`.
std::string shown(const std::optional<std::string>& value,
                  const std::optional<std::string>& other) {
  if (!value) return "not set";
  std::size_t first = 0;
  if (other && std::max(value->size(), other->size()) > kMostShown) {
    const auto at = std::mismatch(value->begin(), value->end(), other->begin(), other->end()).first;
    first = static_cast<std::size_t>(at - value->begin());
    first -= std::min(first, kShownBefore);
  }
  const std::string text = without_control_characters(value->substr(first));
  return message("\"{}{}\"", first > 0 ? "…" : "", shortened(text, kMostShown));
}

/// "ranks 0, 2 and 3 (a, b)"
std::string names_of(const std::vector<Rank>& ranks, const std::vector<std::string>& hosts) {
  if (ranks.size() == 1) return name_of(ranks.front(), hosts);
  constexpr std::size_t kMost = 8;
  std::vector<std::string> numbers;
  for (std::size_t i = 0; i < std::min(kMost, ranks.size()); ++i)
    numbers.push_back(message("{}", ranks[i]));
  if (ranks.size() > kMost) numbers.push_back(message("{} more", ranks.size() - kMost));
  std::string text = message("ranks {}", listed(numbers));
  std::vector<std::string> named;
  for (const Rank rank : ranks)
    if (!hosts.empty() && std::find(named.begin(), named.end(), hosts[rank.value()]) == named.end())
      named.push_back(hosts[rank.value()]);
  for (std::size_t i = 0; i < std::min(kMost, named.size()); ++i)
    text += message("{}{}", i == 0 ? " (" : ", ", named[i]);
  if (named.size() > kMost) text += ", …";
  return named.empty() ? text : text + ")";
}

}  // namespace

std::string name_of(Rank rank, const std::vector<std::string>& hosts) {
  return hosts.empty() ? message("rank {}", rank)
                       : message("rank {} ({})", rank, hosts[rank.value()]);
}

std::optional<std::string> difference_of_facts(const std::vector<JobFacts>& facts_of_ranks,
                                               const std::vector<std::string>& hosts, Facts which) {
  // A fact may be one that the first rank does not have.
  for (const JobFacts& facts : facts_of_ranks)
    for (const auto& fact : facts) {
      if ((fact.first == kProcessorFact) != (which == Facts::kOfTheProcessor)) continue;
      const std::optional<std::string> first = value_of(facts_of_ranks[0], fact.first);
      std::optional<std::string> other;
      std::vector<Rank> with_first, with_other;
      for (std::uint32_t i = 0; i < facts_of_ranks.size(); ++i) {
        const std::optional<std::string> value = value_of(facts_of_ranks[i], fact.first);
        if (value == first) with_first.push_back(Rank(i));
        if (value == first || (!with_other.empty() && value != other)) continue;
        other = value;
        with_other.push_back(Rank(i));
      }
      if (with_other.empty()) continue;
      return message("{} is {} on {} and {} on {}", fact.first, shown(first, other),
                     names_of(with_first, hosts), shown(other, first), names_of(with_other, hosts));
    }
  return std::nullopt;
}

void compare_facts(Transport& transport, const JobFacts& facts, const JobOptions& options,
                   const Clock& clock) {
  const Rank first(0);
  Packed verdict;
  if (transport.rank() == first) {
    std::vector<JobFacts> all{facts};
    const auto notifier = transport.make_notifier(Stream::kControl);
    for (std::uint32_t i = 1; i < transport.ranks(); ++i)
      all.push_back(unpacked(receive(transport, Rank(i), 0, [&](const device::Event& event) {
        const TimePoint late = clock.now() + options.report;
        while (!event.is_done() && notifier->wait(late)) {
        }
        if (!event.is_done())
          log_warning("the job has not begun for {} s: {} has not come to its start",
                      seconds(options.report), name_of(Rank(i), options.hosts));
      })));
    Packer packer;
    const auto difference = difference_of_facts(all, options.hosts, Facts::kThatMustBeEqual);
    packer.add(difference ? *difference + ": a split program needs it to be equal on all ranks"
                          : std::string());
    if (const auto others = difference_of_facts(all, options.hosts, Facts::kOfTheProcessor))
      log_warning("{}: libraries may choose kernels there whose results differ in their last bits, "
                  "so bits are not those of one process (train on hosts of one kind, or let all "
                  "ranks choose alike: ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA, "
                  "MKL_ENABLE_INSTRUCTIONS)",
                  *others);
    verdict = packer.take();
    for (std::uint32_t i = 1; i < transport.ranks(); ++i) send(transport, Rank(i), 2, verdict);
  } else {
    Packed mine = packed(facts);
    send(transport, first, 0, mine);
    verdict = receive(transport, first, 2);
  }
  const std::string difference = Unpacker(verdict).text();
  if (!difference.empty()) throw ConfigError("{}", difference);
}

}  // namespace spillway::pipeline
