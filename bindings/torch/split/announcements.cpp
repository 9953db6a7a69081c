#include "announcements.h"

#include <algorithm>
#include <utility>

namespace spillway::split {
namespace {

bool have_left(const std::vector<std::pair<Rank, device::Event>>& events) {
  return std::all_of(events.begin(), events.end(),
                     [](const auto& event) { return event.second.is_done(); });
}

}  // namespace

Announcements::Announcements(transport::Transport& group, std::uint64_t first)
    : group_(group), first_(first), others_(group.ranks()) {
  for (std::uint32_t shard = 0; shard < group.ranks(); ++shard) {
    if (Rank(shard) == group.rank()) continue;
    others_[shard] = std::make_unique<Other>();
    listen_to(Rank(shard));
  }
}

void Announcements::listen_to(Rank other) {
  Other& from = *others_[other.value()];
  from.event = group_.receive(other, {transport::Stream::kControl, first_ + from.heard},
                              device::host_span_of(from.buffer));
}

std::uint64_t Announcements::tell(const Announcement& announcement) {
  while (!told_.empty() && have_left(told_.front().events)) told_.pop_front();
  Told& told = told_.emplace_back(Told{announcement, {}});
  for (std::uint32_t shard = 0; shard < group_.ranks(); ++shard)
    if (Rank(shard) != group_.rank())
      told.events.emplace_back(
          Rank(shard), group_.send(Rank(shard), {transport::Stream::kControl, first_ + told_count_},
                                   device::host_span_of(told.announcement)));
  return told_count_++;
}

void Announcements::hear() {
  for (std::uint32_t shard = 0; shard < group_.ranks(); ++shard) {
    if (others_[shard] == nullptr) continue;
    Other& from = *others_[shard];
    while (!from.end && from.event.is_done()) {
      const device::Outcome outcome = from.event.wait();
      if (!outcome.succeeded())
        throw transport::TransportError("a message of shard {} was lost: {}", shard, outcome.error);
      take(from);
      if (!from.end) listen_to(Rank(shard));
    }
  }
}

void Announcements::take(Other& from) {
  const Announcement& heard = from.buffer;
  const std::uint64_t place = from.heard++;
  switch (heard.kind) {
    case Announcement::Kind::kMean:
      if (from.skipped_means.erase(from.means) == 0)
        from.means_heard.emplace(from.means, Heard{heard, place});
      ++from.means;
      from.latest_mean = heard;
      break;
    case Announcement::Kind::kCopy:
      from.uses_heard.emplace(heard.parameters[0],
                              Other::FirstUse{heard.step, heard.bytes, heard.keeper, place});
      break;
    case Announcement::Kind::kEnd: from.end = heard; break;
  }
}

std::optional<Announcements::Heard> Announcements::heard_of(Rank other, std::uint64_t mean,
                                                            const Announcement& mine) const {
  if (mine.kind == Announcement::Kind::kMean) {
    const auto found = of(other).means_heard.find(mean);
    if (found == of(other).means_heard.end()) return std::nullopt;
    return found->second;
  }
  const ParameterName& name = mine.parameters[0];
  const auto& uses = of(other).uses_heard;
  auto found = uses.find(name);
  if (found == uses.end()) {
    // How many there are is what tells that shards have made others: the same place among more.
    found = uses.lower_bound({name.kind, name.number, 0});
    if (found == uses.end() || found->first.kind != name.kind || found->first.number != name.number)
      return std::nullopt;
  }
  Heard heard{{.kind = Announcement::Kind::kCopy,
               .step = found->second.step,
               .bytes = found->second.bytes,
               .keeper = found->second.keeper,
               .count = 1},
              found->second.place};
  heard.what.parameters[0] = found->first;
  return heard;
}

void Announcements::match(Rank other, std::uint64_t mean, const Announcement& mine) {
  Other& from = *others_[other.value()];
  if (mine.kind == Announcement::Kind::kMean) {
    from.means_heard.erase(mean);
  } else {
    from.uses_heard.erase(from.uses_heard.find(mine.parameters[0]));
  }
}

void Announcements::skip_mean(std::uint64_t mean) {
  for (const auto& other : others_)
    if (other != nullptr && other->means_heard.erase(mean) == 0) other->skipped_means.insert(mean);
}

std::vector<std::pair<Rank, device::Event>> Announcements::unsent() const {
  std::vector<std::pair<Rank, device::Event>> events;
  for (const Told& told : told_)
    for (const auto& event : told.events)
      if (!event.second.is_done()) events.push_back(event);
  return events;
}

}  // namespace spillway::split
