#include "agreement.h"

#include <algorithm>

#include "spillway/base/assert.h"
#include "spillway/transport/transport.h"

namespace spillway::transport::nccl {

void Agreement::add_group(std::uint32_t group, std::vector<Rank> members) {
  SPILLWAY_ASSERT(group > 0 && std::is_sorted(members.begin(), members.end()));
  groups_.emplace(group, std::move(members));
}

const std::vector<Rank>& Agreement::members(const Circle& circle) {
  if (circle.group > 0) return groups_.at(circle.group);
  const auto [at, is_new] = pairs_.try_emplace(circle.peer);
  if (is_new) at->second = {std::min(self_, circle.peer), std::max(self_, circle.peer)};
  return at->second;
}

Circle Agreement::circle_of(Rank from, const Letter& letter) const {
  if (letter.group == 0) return {0, from};
  if (!groups_.contains(letter.group))
    throw TransportError("rank {} tells rank {} of a group that it is not in", from, self_);
  return {letter.group, Rank()};
}

/// Letters of one kind to one rank travel together, as far as they have room.
void Agreement::write(Rank to, Letter::Kind kind, const Circle& circle,
                      std::vector<Request> requests, Rank about) {
  SPILLWAY_ASSERT(requests.size() <= Letter::kMost);
  if (kind == Letter::Kind::kOffer && !letters_.empty()) {
    auto& [last_to, last] = letters_.back();
    if (last_to == to && last.kind == kind && last.group == circle.group &&
        last.count + requests.size() <= Letter::kMost) {
      std::copy(requests.begin(), requests.end(), last.requests.begin() + last.count);
      last.count += static_cast<std::uint32_t>(requests.size());
      return;
    }
  }
  Letter letter{.kind = kind,
                .group = circle.group,
                .count = static_cast<std::uint32_t>(requests.size()),
                .about = about.value()};
  std::copy(requests.begin(), requests.end(), letter.requests.begin());
  letters_.emplace_back(to, letter);
}

void Agreement::offer(const Circle& circle, const Request& request) {
  const Rank first = first_of(circle);
  if (first == self_) return note(circle, {self_, request});
  if (gone_.contains(first)) {
    misfits_.push_back({circle, request, first, true});
    return;
  }
  mine_.emplace(std::pair(circle, Name{request.place, request.number}), request);
  write(first, Letter::Kind::kOffer, circle, {request});
}

/// Who has sent its last letter has done all that it asked for itself.
void Agreement::note_gone(Rank rank) {
  gone_.insert(rank);
  std::erase_if(mine_, [&](const auto& entry) {
    const auto& [circle, request] = std::pair(entry.first.first, entry.second);
    if (first_of(circle) != rank) return false;
    misfits_.push_back({circle, request, rank, true});
    return true;
  });
}

/// One rank of a circle that this one leads asks for something.
void Agreement::note(const Circle& circle, const Asked& asked) {
  const std::pair key(circle, Name{asked.request.place, asked.request.number});
  std::vector<Asked>& all = asked_[key];
  all.push_back(asked);
  if (all.size() < members(circle).size()) {
    if (miss(circle, all)) asked_.erase(key);
    return;
  }
  std::vector<Asked> complete = std::move(all);
  asked_.erase(key);
  if (!std::all_of(complete.begin(), complete.end(),
                   [&](const Asked& one) { return one.request.fits(complete.front().request); }))
    return refuse(circle, std::move(complete));
  ready_.emplace_back(circle, asked.request);
  go_on();
}

/// Each is told of the first one that asks for something else.
void Agreement::refuse(const Circle& circle, std::vector<Asked> asked) {
  std::sort(asked.begin(), asked.end(),
            [](const Asked& one, const Asked& other) { return one.by < other.by; });
  for (const Asked& mine : asked) {
    const Asked& other = *std::find_if(asked.begin(), asked.end(), [&](const Asked& one) {
      return !one.request.fits(mine.request);
    });
    if (mine.by == self_)
      misfits_.push_back({circle, other.request, other.by});
    else
      write(mine.by, Letter::Kind::kRefuse, circle, {other.request}, other.by);
  }
}

/// Whether somebody who has ended is missing; then who asks is told so.
bool Agreement::miss(const Circle& circle, const std::vector<Asked>& asked) {
  for (const Rank member : members(circle)) {
    const bool asks =
        std::any_of(asked.begin(), asked.end(), [&](const Asked& one) { return one.by == member; });
    if (asks || !ended_.contains(member)) continue;
    for (const Asked& one : asked) {
      if (one.by == self_)
        misfits_.push_back({circle, one.request, member, true});
      else
        write(one.by, Letter::Kind::kMiss, circle, {one.request}, member);
    }
    return true;
  }
  return false;
}

void Agreement::note_ended(Rank rank) {
  ended_.insert(rank);
  std::erase_if(asked_, [&](const auto& entry) { return miss(entry.first.first, entry.second); });
}

void Agreement::take(Rank from, const Letter& letter) {
  if (letter.kind == Letter::Kind::kEnded) return note_ended(from);
  if (letter.kind == Letter::Kind::kLast) return note_gone(from);
  const Circle circle = circle_of(from, letter);
  SPILLWAY_ASSERT(letter.count <= Letter::kMost);
  const std::vector<Request> requests(letter.requests.begin(),
                                      letter.requests.begin() + letter.count);
  if (letter.kind != Letter::Kind::kOffer)
    for (const Request& request : requests)
      mine_.erase(std::pair(circle, Name{request.place, request.number}));
  switch (letter.kind) {
    case Letter::Kind::kOffer:
      for (const Request& request : requests) note(circle, {from, request});
      return;
    case Letter::Kind::kHold:
      waiting_.push_back({circle, requests});
      go_on();
      return;
    case Letter::Kind::kGo:
      if (!held_ || held_->circle != circle)
        throw TransportError("rank {} tells rank {} to go on, which does not wait for it", from,
                             self_);
      agreed_.push_back(std::move(*held_));
      held_.reset();
      go_on();
      return;
    case Letter::Kind::kRefuse:
      misfits_.push_back({circle, requests.at(0), Rank(letter.about)});
      return;
    case Letter::Kind::kMiss:
      misfits_.push_back({circle, requests.at(0), Rank(letter.about), true});
      return;
    default: throw TransportError("rank {} has sent rank {} a letter of no kind", from, self_);
  }
}

/// Holds still for the next one, where it does not already.
void Agreement::go_on() {
  while (!held_) {
    if (!waiting_.empty()) {
      Batch batch = std::move(waiting_.front());
      waiting_.pop_front();
      hold(std::move(batch));
      continue;
    }
    if (ready_.empty()) return;
    // Whatever else is ready in the circle comes along.
    Batch batch{ready_.front().first, {}};
    for (auto at = ready_.begin(); at != ready_.end();) {
      if (at->first != batch.circle || batch.requests.size() == Letter::kMost) {
        ++at;
        continue;
      }
      batch.requests.push_back(at->second);
      at = ready_.erase(at);
    }
    hold(std::move(batch));
  }
}

void Agreement::hold(Batch batch) {
  const std::vector<Rank>& all = members(batch.circle);
  const auto next = std::next(std::find(all.begin(), all.end(), self_));
  if (next == all.end()) {
    for (const Rank other : all)
      if (other != self_) write(other, Letter::Kind::kGo, batch.circle, {});
    agreed_.push_back(std::move(batch));
    return;
  }
  write(*next, Letter::Kind::kHold, batch.circle, batch.requests);
  held_ = std::move(batch);
}

std::vector<std::pair<Rank, Letter>> Agreement::take_letters() {
  return std::exchange(letters_, {});
}

}  // namespace spillway::transport::nccl
