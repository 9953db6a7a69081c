#include "message_check.h"

#include <algorithm>
#include <map>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/schedule/boundary_stages.h"
#include "spillway/schedule/messages.h"
#include "spillway/schedule/stash_walk.h"

namespace spillway::schedule {
namespace {

using Fault = std::optional<ScheduleFault>;

constexpr const char* kNoSinglePeer = "its stage has not exactly two copies";

bool is_gradient(ActionKind kind) {
  return kind == ActionKind::kSendBackward || kind == ActionKind::kReceiveBackward;
}

/// Which messages have been sent and received, and which compute has happened, on the way through
/// the action lists. One rank's action list decides about its own stages alone.
class MessageWalk {
 public:
  MessageWalk(const Schedule& schedule, const WeightCopies& copies)
      : schedule_(schedule), copies_(copies), cells_(schedule, {}), marks_(cells_.cell_count()) {}

  const char* apply(std::uint32_t rank, const Action& action) {
    if (is_of_parameters(action.kind))
      return peer_of(schedule_, copies_, rank, action) ? nullptr : kNoSinglePeer;
    if (!needs_micro_batch(action.kind)) return nullptr;
    Marks& marks = marks_[cells_.cell(action)];
    if (is_send(action.kind) || is_receive(action.kind)) return apply_message(rank, action, marks);
    if (action.kind == ActionKind::kForward) {
      if (needs(action, ActionKind::kReceiveForward)
              ? !marks.received[0]
              : lacks_neighbour(action, /*is_gradient=*/false))
        return "its input was not received";
      marks.made[0] = true;
    } else if (makes_input_gradient(action.kind)) {
      if (needs(action, ActionKind::kReceiveBackward)
              ? !marks.received[1]
              : lacks_neighbour(action, /*is_gradient=*/true))
        return "the gradient of its output was not received";
      marks.made[1] = true;
    }
    return nullptr;
  }

  Fault missing_send() const {
    for (std::uint32_t replica = 0; replica < schedule_.replica_count(); ++replica)
      for (std::uint32_t stage = 0; stage < schedule_.stages; ++stage)
        for (std::uint32_t i = 0; i < schedule_.micro_batches; ++i)
          for (const ActionKind kind : {ActionKind::kSendForward, ActionKind::kSendBackward}) {
            const Action action{kind, stage, i, replica};
            if (!needs(action, kind)) continue;
            if (marks_[cells_.cell(action)].sent[is_gradient(kind)]) continue;
            const std::uint32_t rank = schedule_.rank_of(replica, stage);
            return ScheduleFault{rank, schedule_.ranks[rank].size(), action, "it is missing"};
          }
    return std::nullopt;
  }

 private:
  struct Marks {  // Of the activation, and of the gradient.
    bool made[2] = {};
    bool sent[2] = {};
    bool received[2] = {};
  };

  /// Whether the stage of the action has such a message.
  bool needs(Action action, ActionKind kind) const {
    action.kind = kind;
    return peer_of(schedule_, copies_, schedule_.rank_of(action.replica, action.stage), action)
        .has_value();
  }

  /// Whether it uses the output of another stage of its rank, which is not made yet.
  bool lacks_neighbour(Action action, bool is_gradient) const {
    const auto neighbour = input_stage(schedule_, action);
    if (!neighbour) return false;
    action.stage = *neighbour;
    return !marks_[cells_.cell(action)].made[is_gradient];
  }

  const char* apply_message(std::uint32_t rank, const Action& action, Marks& marks) const {
    const bool gradient = is_gradient(action.kind);
    if (!peer_of(schedule_, copies_, rank, action)) return "there is no other rank behind it";
    if (is_send(action.kind)) {
      if (!marks.made[gradient]) return "it comes before what it sends";
      return std::exchange(marks.sent[gradient], true) ? "it comes a second time" : nullptr;
    }
    return std::exchange(marks.received[gradient], true) ? "it comes a second time" : nullptr;
  }

  const Schedule& schedule_;
  const WeightCopies& copies_;
  StashWalk cells_;  // For positions alone.
  std::vector<Marks> marks_;
};

struct Passed {
  std::size_t position = 0;
  Action action;
};

/// What goes from one rank to another, as the sender and as the receiver have it.
struct Channel {
  std::vector<Passed> sends;
  std::vector<Passed> receives;
};

}  // namespace

Fault message_fault(const Schedule& schedule, const WeightCopies& copies) {
  MessageWalk walk(schedule, copies);
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i)
      if (const char* reason = walk.apply(rank, schedule.ranks[rank][i]))
        return ScheduleFault{rank, i, schedule.ranks[rank][i], reason};
  return walk.missing_send();
}

Fault order_fault(const Schedule& schedule, const WeightCopies& copies) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, Channel> channels;  // By receiver and sender.
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const Action& action = schedule.ranks[rank][i];
      if (!is_send(action.kind) && !is_receive(action.kind)) continue;
      const auto found = peer_of(schedule, copies, rank, action);
      if (!found) return ScheduleFault{rank, i, action, kNoSinglePeer};
      const std::uint32_t peer = *found;
      if (is_send(action.kind))
        channels[{peer, rank}].sends.push_back({i, action});
      else
        channels[{rank, peer}].receives.push_back({i, action});
    }
  for (const auto& [ends, channel] : channels) {
    const auto [receiver, sender] = ends;
    const std::size_t common = std::min(channel.sends.size(), channel.receives.size());
    for (std::size_t i = 0; i < common; ++i) {
      const Passed& receive = channel.receives[i];
      const Action expected = match_of(schedule, receive.action);
      if (channel.sends[i].action == expected) continue;
      return ScheduleFault{receiver, receive.position, receive.action,
                           message("rank {} sends {} there", sender, channel.sends[i].action)};
    }
    if (channel.receives.size() > common) {
      const Passed& receive = channel.receives[common];
      return ScheduleFault{receiver, receive.position, receive.action,
                           message("rank {} sends nothing for it", sender)};
    }
    if (channel.sends.size() > common) {
      const Passed& send = channel.sends[common];
      return ScheduleFault{sender, send.position, send.action,
                           message("rank {} does not receive it", receiver)};
    }
  }
  return std::nullopt;
}

}  // namespace spillway::schedule
