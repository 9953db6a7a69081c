#include <algorithm>
#include <optional>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/schedule_passes.h"
#include "spillway/schedule/messages.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner_schedule {
namespace {

/// Everything by the moment at which it belongs: the begin of an action, the end of what a message
/// carries. Moments are all different, but of messages of one moment, which then keep the order in
/// which they were added, the same on both sides.
class OneOrder {
 public:
  /// `timing` is a run of these action lists.
  OneOrder(const Schedule& schedule, ScheduleTiming timing)
      : schedule_(schedule),
        copies_(schedule),
        timing_(std::move(timing)),
        entries_(schedule.ranks.size()),
        uses_(copies_.size()),
        forward_ends_(schedule.ranks.size(), 0) {
    for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
      for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
        // What runs as one belongs to one moment.
        const bool is_second = i > 0 && schedule.ranks[rank][i - 1].overlaps_next;
        const Action& action = schedule.ranks[rank][i];
        const std::uint64_t start = timing_.spans[rank][is_second ? i - 1 : i].start_order;
        add(start, rank, action);
        if (!schedule::is_model_compute(action.kind)) continue;
        Use& use = uses_[copies_.at(rank, action.stage)];
        use.first_start = std::min(use.first_start, start);
        use.last_end = timing_.spans[rank][i].end_order;
        if (action.replica == 0 && action.kind == ActionKind::kForward)
          forward_ends_[rank] = use.last_end;
      }
  }

  // A message stands where its content is made, in both lists. Any later place could stand behind
  // something that waits for it on the other rank, and the two would wait for each other.
  void add_messages() {
    for (std::uint32_t rank = 0; rank < schedule_.rank_count(); ++rank)
      for (std::size_t i = 0; i < schedule_.ranks[rank].size(); ++i) {
        Action send = schedule_.ranks[rank][i];
        if (send.kind == ActionKind::kForward)
          send.kind = ActionKind::kSendForward;
        else if (schedule::makes_input_gradient(send.kind))
          send.kind = ActionKind::kSendBackward;
        else
          continue;
        // What runs as one delivers at its end.
        const std::size_t end = send.overlaps_next ? i + 1 : i;
        send.overlaps_next = false;
        exchange(timing_.spans[rank][end].end_order, rank, send);
      }
  }

  /// In a schedule without steps: those of all stages will come behind everything.
  void add_reductions(std::uint32_t data_parallel, bool at_end) {
    // The last stage is the first to have its gradients. Sums of one moment keep this order on all
    // their ranks.
    for (std::uint32_t stage = schedule_.stages; stage-- > 0;) {
      const auto& holders = copies_.holders(stage);
      if (holders.size() * data_parallel == 1) continue;
      // All holders enter a sum at one moment, that of the last of them. At moments of their own,
      // two ranks could enter two sums in opposite orders, and neither would start.
      std::uint64_t moment = at_end ? kEnd : 0;
      for (const std::uint32_t rank : holders) moment = std::max(moment, gradient_end(rank, stage));
      for (const std::uint32_t rank : holders)
        add(moment, rank, {ActionKind::kReduce, stage, kNoMicroBatch});
    }
  }

  /// Why one copy cannot own, or nothing.
  std::optional<Refusal> add_single_owner(std::uint32_t data_parallel) {
    bool has_two = false;
    for (std::uint32_t stage = schedule_.stages; stage-- > 0;) {
      const auto& holders = copies_.holders(stage);
      // Several borrowers would need an order among them; chains of replicas never have more than
      // one.
      if (holders.size() > 2)
        return no_plan("stage {} has {} copies: a single owner lends to one", stage,
                       holders.size());
      std::uint64_t moment = gradient_end(holders[0], stage);
      if (holders.size() == 2) {
        has_two = true;
        const std::uint32_t owner = holders[0];
        const std::uint32_t mirror = holders[1];
        // The owner of the mirror's own stage does the same at this moment: the one at which both
        // have done their forward of the first replica.
        const std::uint64_t lent = std::max(forward_ends_[owner], forward_ends_[mirror]);
        if (uses_[copies_.at(mirror, stage)].first_start < lent)
          return no_plan(
              "{}: rank {} uses stage {} before rank {}, its single owner, is through with the "
              "forwards of replica 0 and lends it (let all copies be stepped)",
              schedule_.name, mirror, stage, owner);
        exchange(lent, owner, {ActionKind::kSendWeights, stage, kNoMicroBatch});
        const std::uint64_t given_back = gradient_end(mirror, stage);
        exchange(given_back, mirror, {ActionKind::kSendGradients, stage, kNoMicroBatch});
        // Nobody needs the borrowed copy until it is lent again. It is unchanged, so it leaves for
        // free.
        add(given_back, mirror, {ActionKind::kSwapOutWeights, stage, kNoMicroBatch});
        moment = std::max(moment, given_back);
      }
      if (data_parallel > 1) add(moment, holders[0], {ActionKind::kReduce, stage, kNoMicroBatch});
    }
    if (has_two) return std::nullopt;
    return no_plan("{}: no stage has two copies, of which one could own", schedule_.name);
  }

  void add_steps(CopyRule rule) {
    for (std::uint32_t stage = schedule_.stages; stage-- > 0;)
      for (const std::uint32_t rank : copies_.holders(stage))
        if (rule == CopyRule::kReduced || rank == copies_.holders(stage)[0])
          // A step further ahead would hold up the compute behind it until its sum is over.
          add(kEnd, rank, {ActionKind::kStep, stage, kNoMicroBatch});
  }

  std::vector<std::vector<Action>> action_lists() && {
    std::vector<std::vector<Action>> action_lists;
    for (auto& entries : entries_) {
      // Entries of one moment must stand in the same order on both of their ranks.
      std::stable_sort(entries.begin(), entries.end(),
                       [](const Entry& a, const Entry& b) { return a.moment < b.moment; });
      auto& list = action_lists.emplace_back();
      for (const Entry& entry : entries) list.push_back(entry.action);
    }
    return action_lists;
  }

 private:
  static constexpr std::uint64_t kEnd = static_cast<std::uint64_t>(-1);
  struct Entry {
    std::uint64_t moment = 0;
    Action action;
  };
  /// When the compute of a copy begins, and when its gradients are complete.
  struct Use {
    std::uint64_t first_start = kEnd;
    std::uint64_t last_end = 0;
  };

  void add(std::uint64_t moment, std::uint32_t rank, const Action& action) {
    entries_[rank].push_back({moment, action});
  }

  void exchange(std::uint64_t moment, std::uint32_t rank, const Action& send) {
    const auto peer = schedule::peer_of(schedule_, copies_, rank, send);
    if (!peer) return;
    add(moment, rank, send);
    add(moment, *peer, schedule::match_of(schedule_, send));
  }

  std::uint64_t gradient_end(std::uint32_t rank, std::uint32_t stage) const {
    return uses_[copies_.at(rank, stage)].last_end;
  }

  const Schedule& schedule_;
  WeightCopies copies_;
  ScheduleTiming timing_;
  std::vector<std::vector<Entry>> entries_;
  std::vector<Use> uses_;                    // By copy.
  std::vector<std::uint64_t> forward_ends_;  // By rank, of its forwards of replica 0.
};

bool is_communication(ActionKind kind) {
  return schedule::is_send(kind) || schedule::is_receive(kind) || kind == ActionKind::kReduce;
}

/// Takes the steps out when they are at the end of everything; returns whether they are.
bool take_steps(Schedule& schedule) {
  // A step that names its last micro-batch has its meaning from its place among the backwards, and
  // stays there. Others are set anew, behind sums that do not exist yet.
  bool has_flush = true;
  for (const auto& actions : schedule.ranks)
    for (const Action& action : actions)
      if (action.kind == ActionKind::kStep && action.micro_batch != kNoMicroBatch)
        has_flush = false;
  if (has_flush)
    for (auto& actions : schedule.ranks)
      std::erase_if(actions, [](const Action& each) { return each.kind == ActionKind::kStep; });
  return has_flush;
}

/// Without a flush, a stage is reduced right before each of its steps.
void reduce_before_steps(Schedule& schedule) {
  for (auto& actions : schedule.ranks) {
    std::vector<Action> longer;
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kStep)
        // Sooner, gradients of the batch would be missing in the sum.
        longer.push_back({ActionKind::kReduce, action.stage, kNoMicroBatch});
      longer.push_back(action);
    }
    actions = std::move(longer);
  }
}

}  // namespace

OrRefusal<Schedule> with_communication(const Schedule& schedule, const ScheduleCosts& costs,
                                       const CommunicationOptions& options) {
  schedule::check_shape(schedule);
  if (options.data_parallel == 0) throw ConfigError("there must be a pipeline at least, not 0");
  for (const auto& actions : schedule.ranks)
    for (const Action& action : actions)
      if (is_communication(action.kind))
        throw PlanError("{} has communication already ({})", schedule.name, action);
  Schedule plain = schedule;
  const bool has_flush = take_steps(plain);
  if (!has_flush && (schedule.replica_count() > 1 || options.copy_rule != CopyRule::kReduced))
    return no_plan("{} steps while micro-batches are in flight: its stages must have one copy each",
                   schedule.name);
  // Lists made under any times cannot deadlock. Those of the job at hand make the messages of a
  // rank leave in the order in which it will have them.
  OneOrder order(plain, time_schedule(plain, costs));
  order.add_messages();
  if (has_flush) {
    if (options.copy_rule == CopyRule::kReduced)
      order.add_reductions(options.data_parallel, options.reduces_at_end);
    else if (auto reason = order.add_single_owner(options.data_parallel))
      return std::move(*reason);
    order.add_steps(options.copy_rule);
  }
  Schedule complete = plain;
  complete.data_parallel = options.data_parallel;
  complete.ranks = std::move(order).action_lists();
  if (!has_flush && options.data_parallel > 1) reduce_before_steps(complete);
  return complete;
}

OrRefusal<Schedule> with_communication(const Schedule& schedule,
                                       const CommunicationOptions& options) {
  schedule::check_shape(schedule);
  // Generators make their orders for equal times, too.
  return with_communication(schedule, even_costs(schedule, 1.0, 1.0, 1.0), options);
}

}  // namespace spillway::planner_schedule
