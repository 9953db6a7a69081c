#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "run_links.h"
#include "run_memory.h"
#include "spillway/planner/schedule/schedule_timing.h"
#include "spillway/schedule/stash_walk.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::planner {

/// One run of a schedule in discrete events; see `time_schedule`. How long an action takes is known
/// when it starts.
class ScheduleRun {
 public:
  /// Both outlive it, and `check` has accepted both.
  ScheduleRun(const Schedule& schedule, const ScheduleCosts& costs);

  ScheduleTiming run() &&;

 private:
  enum class Moment : std::uint8_t {
    kEnd,      // Of the action.
    kArrival,  // Of its output at the next rank.
    kRoom,     // The copy into the device starts, and takes its room.
    kPartOut,  // What its stage swaps of a stash has left.
  };
  static constexpr std::size_t kNotPosted = static_cast<std::size_t>(-1);

  struct Event {
    double seconds = 0.0;
    std::uint64_t number = 0;      // Of two at the same time, the one that was known first.
    std::uint32_t rank = 0;        // Whom it concerns.
    std::uint32_t cause_rank = 0;  // Whose action list has the action that ends.
    std::size_t position = 0;      // Of it in that action list.
    Moment moment = Moment::kEnd;

    bool operator>(const Event& other) const {
      return seconds != other.seconds ? seconds > other.seconds : number > other.number;
    }
  };
  struct Rank {
    std::size_t next = 0;
    bool is_computing = false;
    bool has_computed = false;
    double returned = 0.0;  // Of a stash, when the compute under way is over.
    double free_since = 0.0;
    std::uint32_t swap_outs = 0;  // Under way.
    double part_out = 0.0;        // When what a stage swaps of the last stash has left.
    double before = 0.0;          // When the compute before, or before both that run as one, ended.
    double backward_end = -1.0;   // Of the last one of a stage that swaps.
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
    std::uint32_t copies = 0;      // Between device and host, under way.
    std::uint32_t reductions = 0;  // Under way.
    bool is_resident = true;
    bool is_changed = false;
  };

  void advance(std::uint32_t rank);
  bool can_start(std::uint32_t rank, const Action& action);
  bool can_start_second(std::uint32_t rank, const Action& first);
  bool has_room(std::uint32_t rank, const Action& action) const;
  void start(std::uint32_t rank, const Action& action);
  void start_compute(std::uint32_t rank, const Action& action, const StashEffect& effect);
  double end_with_parts(std::uint32_t rank, const Action& action, double end);
  void start_copy(std::uint32_t rank, const Action& action);
  void start_weight_copy(std::uint32_t rank, const Action& action);
  void post_receive(std::size_t position, const Action& action);
  void send_message(std::uint32_t rank, std::size_t position, const Action& action);
  void send_parameters(std::uint32_t rank, const Action& action);
  void join_reduction(std::uint32_t rank, const Action& action);
  void handle(const Event& event);
  void arrive(const Event& event, const Action& action);
  void arrive(std::uint32_t rank, Mail& mail);
  void end_compute(std::uint32_t rank, std::size_t position, const Action& action);
  void deliver(std::uint32_t rank, std::size_t position);
  void end_copy(std::uint32_t rank, const Action& action);
  void attribute_wait(std::uint32_t rank, const Action& action);
  void fail_where_it_stalls() const;

  void push(double seconds, std::uint32_t rank, std::uint32_t cause_rank, std::size_t position,
            Moment moment = Moment::kEnd);
  Arrival& arrival(const Action& of, bool is_gradient);
  Arrival* input_of(const Action& action);
  const Arrival* last_input_of(std::uint32_t rank, const Action& action);
  double stash_bytes(const Action& action) const;
  Parameters& parameters(std::uint32_t rank, std::uint32_t stage) {
    return parameters_[copies_.at(rank, stage)];
  }

  const Schedule& schedule_;
  const ScheduleCosts& costs_;
  bool has_messages_ = false;
  WeightCopies copies_;
  StashWalk walk_;
  RunMemory memory_;
  RunLinks links_;
  std::vector<Rank> ranks_;
  std::vector<Parameters> parameters_;
  std::vector<Arrival> arrivals_;  // By cell, activation and gradient.
  std::vector<std::size_t>
      receives_;  // As arrivals: where a receive was posted, in its action list.
  std::vector<double> copied_until_;       // By cell: the end of the last copy of its stash.
  std::vector<double> part_out_;           // By cell: when what its stage swaps of it has left.
  std::vector<std::vector<Join>> joined_;  // By stage: those that have come to the reduction.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t event_count_ = 0;
  std::uint64_t order_ = 0;
  double now_ = 0.0;
  ScheduleTiming timing_;
};

}  // namespace spillway::planner
