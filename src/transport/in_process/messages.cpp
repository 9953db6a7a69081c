#include "messages.h"

#include <algorithm>
#include <cstring>

namespace spillway::transport {
namespace {

std::string to_string(const Messages::Name& name) {
  return message("{} from rank {} to rank {}", name.tag, name.from, name.to);
}

std::string death_of(Rank rank) { return message("rank {} has died", rank); }

}  // namespace

void Messages::finish(const End& end, TimePoint now, const std::string& error) {
  if (end == nullptr || end->is_done.load(std::memory_order_relaxed)) return;
  end->outcome.error = error;
  end->at = now;
  end->is_done.store(true, std::memory_order_release);
}

Messages::End Messages::send(const Name& name, device::DeviceSpan bytes, TimePoint now,
                             Duration delay) {
  Message& one = all_[name];
  if (one.sent != nullptr) throw Error("{} is sent twice at a time", to_string(name));
  const End end = one.sent = std::make_shared<MessageEnd>();
  one.source = bytes;
  one.delay = delay;
  if (!options_.sends_wait) {
    one.copy.assign(bytes.data, bytes.data + bytes.size.count());
    finish(end, now);
    start(name, one, now);
  } else if (is_dead(name.to)) {
    finish(end, now, death_of(name.to));
    all_.erase(name);
  } else if (one.received != nullptr) {
    start(name, one, now);
  }
  return end;
}

Messages::End Messages::receive(const Name& name, device::DeviceSpan bytes, TimePoint now) {
  Message& one = all_[name];
  if (one.received != nullptr) throw Error("{} is received twice at a time", to_string(name));
  const End end = one.received = std::make_shared<MessageEnd>();
  one.target = bytes;
  if (one.sent == nullptr) {
    if (!is_dead(name.from)) return end;
    finish(end, now, death_of(name.from));
    all_.erase(name);
    return end;
  }
  if (!one.is_under_way && !one.has_arrived) start(name, one, now);
  end_if_complete(all_.find(name), now);
  return end;
}

/// Puts a message on the link of its two ranks, behind those before it.
void Messages::start(const Name& name, Message& message, TimePoint now) {
  TimePoint& free = link_free_[{name.from, name.to}];
  free = std::max(free, now);
  if (options_.bytes_per_second > 0)
    free += Duration(static_cast<Duration::rep>(
        1e9 * static_cast<double>(message.source.size.count()) / options_.bytes_per_second));
  message.is_under_way = true;
  under_way_.insert({free + options_.latency + message.delay, name});
}

TimePoint Messages::next_arrival() const {
  return under_way_.empty() ? TimePoint::max() : under_way_.begin()->first;
}

std::vector<Messages::News> Messages::arrive(TimePoint now) {
  std::vector<News> told;
  while (next_arrival() <= now) {
    const Name name = under_way_.begin()->second;
    under_way_.erase(under_way_.begin());
    const auto at = all_.find(name);
    at->second.has_arrived = true;
    if (!end_if_complete(at, now)) continue;
    told.push_back({name.from, name.tag.stream});
    told.push_back({name.to, name.tag.stream});
  }
  return told;
}

bool Messages::end_if_complete(All::iterator at, TimePoint now) {
  Message& one = at->second;
  if (!one.has_arrived || one.received == nullptr) return false;
  std::string error;
  if (one.source.size != one.target.size) {
    error = message("{} has {} bytes, and {} were expected", to_string(at->first),
                    one.source.size.count(), one.target.size.count());
  } else if (one.target.size > Bytes()) {
    const std::byte* const bytes = options_.sends_wait ? one.source.data : one.copy.data();
    std::memcpy(one.target.data, bytes, one.target.size.count());
  }
  finish(one.sent, now);
  finish(one.received, now, error);
  all_.erase(at);
  return true;
}

std::vector<Messages::News> Messages::note_death(Rank dead, TimePoint now) {
  dead_.insert(dead);
  std::vector<News> told;
  for (auto at = all_.begin(); at != all_.end();) {
    const auto& [name, one] = *at;
    // Its memory is gone; what it sent comes through where that was copied.
    const bool has_left = name.from == dead && one.sent != nullptr && !options_.sends_wait;
    if (has_left || (name.from != dead && name.to != dead)) {
      ++at;
      continue;
    }
    finish(one.sent, now, death_of(dead));
    finish(one.received, now, death_of(dead));
    told.push_back({name.from == dead ? name.to : name.from, name.tag.stream});
    std::erase_if(under_way_, [&](const auto& way) { return way.second == name; });
    at = all_.erase(at);
  }
  return told;
}

void Messages::end_all(const std::string& reason, TimePoint now) {
  for (auto& [name, one] : all_) {
    finish(one.sent, now, reason);
    finish(one.received, now, reason);
  }
  all_.clear();
  under_way_.clear();
}

std::string Messages::unreceived() const {
  for (const auto& [name, one] : all_)
    if (one.sent != nullptr && one.received == nullptr && !is_dead(name.to)) return to_string(name);
  return {};
}

}  // namespace spillway::transport
