#include "matching.h"

#include <cstring>

#include "spillway/base/assert.h"

namespace spillway::transport::mpi {

std::string Matching::incoming(const Name& name) const {
  return message("{} from rank {} to rank {}", name.tag, name.peer, self_);
}

std::string Matching::outgoing(const Name& name) const {
  return message("{} from rank {} to rank {}", name.tag, self_, name.peer);
}

/// Ends `posted` where the bytes are here or do not fit, and says what is to be received else.
std::optional<DataReceive> Matching::match(const Name& name, Posted& posted,
                                           const Arrival& arrival) {
  const device::DeviceSpan target = posted.bytes;
  std::optional<DataReceive> data;
  if (arrival.data_tag) data = DataReceive{name, arrival.size, *arrival.data_tag};
  if (arrival.size != target.size) {
    end_receive(name, message("{} has {} bytes, and {} were expected", incoming(name),
                              arrival.size.count(), target.size.count()));
  } else if (data) {
    posted.is_matched = true;
    data->target = target.data;
  } else {
    if (target.size > Bytes()) std::memcpy(target.data, arrival.bytes.data(), target.size.count());
    end_receive(name, {});
  }
  return data;
}

std::optional<DataReceive> Matching::arrive(const Arrival& arrival) {
  const auto at = posted_.find(arrival.name);
  if (at != posted_.end() && !at->second.is_matched)
    return match(arrival.name, at->second, arrival);
  const bool is_new =
      early_
          .try_emplace(
              arrival.name,
              Early{arrival.size, arrival.data_tag, {arrival.bytes.begin(), arrival.bytes.end()}})
          .second;
  if (at != posted_.end() || !is_new)
    throw TransportError("{} is sent again before the one before it was received",
                         incoming(arrival.name));
  return std::nullopt;
}

std::pair<EventPointer, std::optional<DataReceive>> Matching::receive(const Name& name,
                                                                      device::DeviceSpan bytes) {
  const auto early = early_.find(name);
  const auto [at, is_new] =
      posted_.try_emplace(name, Posted{std::make_shared<MessageEvent>(), bytes});
  if (!is_new) throw Error("{} is received twice at a time", incoming(name));
  const EventPointer event = at->second.event;
  if (early == early_.end()) {
    if (has_left(name.peer)) end_vain_receive(name);
    return {event, std::nullopt};
  }
  const Early here = std::move(early->second);
  early_.erase(early);
  return {event, match(name, at->second, {name, here.size, here.data_tag, here.bytes})};
}

void Matching::end_receive(const Name& name, const std::string& error) {
  const auto at = posted_.find(name);
  SPILLWAY_ASSERT(at != posted_.end());
  news_.set(static_cast<std::size_t>(name.tag.stream));
  const EventPointer event = std::move(at->second.event);
  posted_.erase(at);  // First: who sees the end may use the name again.
  event->finish(error);
}

EventPointer Matching::start_send(const Name& name) {
  const auto [at, is_new] = sent_.try_emplace(name);
  if (!is_new) throw Error("{} is sent twice at a time", outgoing(name));
  at->second = std::make_shared<MessageEvent>();
  return at->second;
}

void Matching::end_send(const Name& name, const std::string& error) {
  const auto at = sent_.find(name);
  SPILLWAY_ASSERT(at != sent_.end());
  news_.set(static_cast<std::size_t>(name.tag.stream));
  const EventPointer event = std::move(at->second);
  sent_.erase(at);
  event->finish(error);
}

void Matching::note_left(Rank peer) {
  left_.insert(peer);
  for (auto at = posted_.begin(); at != posted_.end();) {
    const auto next = std::next(at);
    if (at->first.peer == peer && !at->second.is_matched) end_vain_receive(at->first);
    at = next;
  }
}

void Matching::end_vain_receive(const Name& name) {
  end_receive(name, message("rank {} has left the job without {}", name.peer, incoming(name)));
}

void Matching::end_all(const std::string& reason) {
  while (!posted_.empty()) end_receive(Name(posted_.begin()->first), reason);
  while (!sent_.empty()) end_send(Name(sent_.begin()->first), reason);
}

Matching::Unreceived Matching::take_unreceived() {
  Unreceived found;
  for (const auto& [name, early] : early_) {
    found.names.push_back(incoming(name));
    if (early.data_tag) found.data.push_back({name, early.size, *early.data_tag});
  }
  early_.clear();
  return found;
}

}  // namespace spillway::transport::mpi
