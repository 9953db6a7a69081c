#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "run_memory.h"
#include "spillway/planner/schedule/schedule_links.h"
#include "spillway/schedule/stash_walk.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner_schedule {

/// One run of a schedule in discrete events; see `run_schedule`. Ranks are those of all pipelines.
class ScheduleRun {
 public:
  /// All outlive it, and `check` has accepted schedule and costs. `lists` are the action lists with
  /// all of their repetitions.
  ScheduleRun(const Schedule& schedule, const Schedule& lists, const ScheduleCosts& costs,
              ScheduleLinks& links, const RunOptions& options);

  RunTiming run() &&;

 private:
  using Id = ScheduleLinks::Id;
  using Transfer = ScheduleLinks::Transfer;
  static constexpr double kUnknown = ScheduleLinks::kUnknown;

  enum class Moment : std::uint8_t {
    kEnd,      // Of the action.
    kArrival,  // Of its output at the next rank.
    kRoom,     // The copy into the device starts, and takes its room.
    kPartOut,  // What its stage swaps of a stash has left,
    kPartIn,   // or come back.
  };
  static constexpr std::size_t kNotPosted = static_cast<std::size_t>(-1);

  struct Event {
    double seconds = 0.0;
    std::uint64_t number = 0;      // Of two at the same time, the one that was known first.
    std::uint32_t rank = 0;        // Whom it concerns.
    std::uint32_t cause_rank = 0;  // Whose action list has the action that ends.
    std::size_t position = 0;      // Of it in that action list.
    Moment moment = Moment::kEnd;
    Id transfer = ScheduleLinks::kNone;  // Whose end it is, where that was not known.

    bool operator>(const Event& other) const {
      return seconds != other.seconds ? seconds > other.seconds : number > other.number;
    }
  };
  struct Rank {
    const std::vector<Action>* actions = nullptr;
    std::uint32_t pipeline = 0;
    std::uint32_t first = 0;       // Rank of its pipeline.
    std::uint32_t first_copy = 0;  // Of its pipeline in tables over all of them.
    std::size_t first_cell = 0;    // The same.
    std::size_t counted_from = 0;  // Position from which on times are reported.
    double slowdown = 1.0;
    std::size_t next = 0;
    bool is_computing = false;
    bool has_computed = false;
    double returned = 0.0;  // Of a stash, when the compute under way is over.
    double free_since = 0.0;
    std::uint32_t swap_outs = 0;  // Under way.
    double part_out = 0.0;        // When what a stage swaps of the last stash has left.
    double part_out_since = 0.0;  // When that was asked for.
    double before = 0.0;          // When the compute before, or before both that run as one, ended.
    double backward_end = -1.0;   // Of the last one of a stage that swaps.
    bool has_part_in = false;     // What swaps in for the next backward has been asked for.
    double part_in = 0.0;         // When that is there.
    double part_in_since = 0.0;
    double computed = 0.0;  // When the compute under way would end without it.
    std::size_t ahead = 0;  // Position up to which copies in have been asked for.
  };
  /// When the input of a stage, or the gradient of its output, comes for one micro-batch.
  struct Arrival {
    double sent = 0.0;
    double arrived = -1.0;
  };
  /// Messages for a copy of the parameters.
  struct Mail {
    bool is_there() const { return arrived >= receives.size(); }

    std::vector<std::size_t> receives;  // Positions of those that have been posted.
    std::size_t arrived = 0;
  };
  struct Join {
    std::uint32_t rank = 0;
    std::size_t position = 0;
  };
  struct Parameters {  // A copy of them.
    Mail weights;
    Mail gradients;
    std::uint32_t copies = 0;       // Between device and host, under way.
    std::uint32_t reductions = 0;   // Under way.
    double summed_since = 0.0;      // When all had come to the last one, and
    double summed = -1.0;           // when that was over; where links do not know it before.
    Id sum = ScheduleLinks::kNone;  // The last one.
    bool is_resident = true;
    bool is_changed = false;
  };

  void advance(std::uint32_t rank);
  bool can_start(std::uint32_t rank, const Action& action);
  bool can_compute(std::uint32_t rank, const Action& action);
  bool can_start_second(std::uint32_t rank, const Action& first);
  bool has_room(std::uint32_t rank, const Action& action) const;
  void start(std::uint32_t rank, const Action& action);
  void start_compute(std::uint32_t rank, const Action& action, const StashEffect& effect);
  double end_with_parts(std::uint32_t rank, const Action& action);
  void end_at(std::uint32_t rank, std::size_t position, double end);
  void ask_part_in(std::uint32_t rank, std::size_t position, double since);
  void ask_part_in_ahead(std::uint32_t rank);
  bool is_compute_before_over(const Rank& state, std::size_t position) const;
  void end_part(const Event& event);
  void start_copy(std::uint32_t rank, const Action& action);
  void start_weight_copy(std::uint32_t rank, const Action& action);
  void post_receive(std::uint32_t rank, std::size_t position, const Action& action);
  void send_message(std::uint32_t rank, std::size_t position, const Action& action);
  void send_parameters(std::uint32_t rank, const Action& action);
  void join_reduction(std::uint32_t rank, const Action& action);
  void begin_reduction(const Transfer& sum, std::vector<Join>& joined);
  void end_reduction(std::uint32_t rank, const Action& action);
  void report();
  void handle(const Event& event);
  void arrive(const Event& event, const Action& action);
  void arrive(std::uint32_t rank, Mail& mail);
  void end_compute(std::uint32_t rank, std::size_t position, const Action& action);
  void deliver(std::uint32_t rank, std::size_t position);
  void end_copy(const Event& event, const Action& action);
  void attribute_wait(std::uint32_t rank, const Action& action);
  void fail_where_it_stalls() const;

  void push(double seconds, std::uint32_t rank, std::uint32_t cause_rank, std::size_t position,
            Moment moment = Moment::kEnd, Id transfer = ScheduleLinks::kNone);
  void await(const Transfer& transfer, std::uint32_t rank, std::uint32_t cause_rank,
             std::size_t position, Moment moment = Moment::kEnd);
  void end_transfer(Id id);
  ActionSpan& span(std::uint32_t rank, std::size_t position);
  /// Links that know ends may know of one that never comes.
  bool is_known(double end_seconds) const { return links_.knows_ends() || end_seconds != kUnknown; }
  bool is_counted(std::uint32_t rank, std::size_t position) const {
    return position >= ranks_[rank].counted_from;
  }
  /// Position in tables over the micro-batches of all pipelines.
  std::size_t cell(std::uint32_t rank, const Action& action) const {
    return ranks_[rank].first_cell + walks_.front().cell(action);
  }
  StashWalk& walk(std::uint32_t rank) { return walks_[ranks_[rank].pipeline]; }
  bool is_update(const Action& action) const {
    return options_.updates_on_hosts && action.kind == ActionKind::kStep;
  }
  Arrival& arrival(std::uint32_t rank, const Action& of, bool is_gradient);
  Arrival* input_of(std::uint32_t rank, const Action& action);
  const Arrival* last_input_of(std::uint32_t rank, const Action& action);
  double stash_bytes(const Action& action) const;
  Parameters& parameters(std::uint32_t rank, std::uint32_t stage) {
    const Rank& state = ranks_[rank];
    return parameters_[state.first_copy + copies_.at(rank - state.first, stage)];
  }

  const Schedule& schedule_;
  const ScheduleCosts& costs_;
  ScheduleLinks& links_;
  const RunOptions& options_;
  bool has_messages_ = false;
  bool has_reductions_ = false;
  WeightCopies copies_;
  std::vector<StashWalk> walks_;  // By pipeline.
  RunMemory memory_;
  std::vector<Rank> ranks_;
  std::vector<Parameters> parameters_;
  std::vector<Arrival> arrivals_;  // By cell, activation and gradient.
  std::vector<std::size_t>
      receives_;  // As arrivals: where a receive was posted, in its action list.
  std::vector<double> copied_until_;       // By cell: the end of the last copy of its stash.
  std::vector<Id> copies_of_;              // By cell: the number of that copy.
  std::vector<Id> parts_out_;              // By cell: the copy of what its stage swaps of it.
  std::vector<Event> awaited_;             // By number: transfers whose ends are not known,
  std::uint64_t awaited_count_ = 0;        // and so many have not ended.
  std::vector<std::vector<Join>> joined_;  // By stage: those that have come to the reduction.
  std::vector<double> repetition_ends_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t event_count_ = 0;
  std::uint64_t order_ = 0;
  double now_ = 0.0;
  ActionSpan untraced_;
  ScheduleTiming timing_;
  std::vector<PartSpan> parts_;
};

}  // namespace spillway::planner_schedule
