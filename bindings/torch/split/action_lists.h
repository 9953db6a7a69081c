#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "executor.h"
#include "spillway/pipeline/ownership/ownership.h"
#include "spillway/pipeline/tasks/action_order.h"
#include "spillway/split/split_placement.h"

namespace spillway::split {

/// Keeps the executor to this rank's action list of the schedule: from the first step on with a
/// plan, else from the second one on, by as many micro-batches as the step before had. The
/// program's thread, on all ranks alike.
class ActionLists {
 public:
  /// Both outlive it.
  ActionLists(const Layout& layout, Rank rank, Executor& executor);

  /// A step has begun; the one before had so many micro-batches.
  void begin_step(std::uint64_t micro_batches);
  /// Of the step: what is missing in the list does not come.
  void end_step();
  /// The program asks for an operator of that action, on this rank or another one; returns where it
  /// stands.
  Executor::Place come_to(const ForAction& action);
  /// Where a message for such an operator stands; of no action, or without lists: behind all that
  /// was asked for.
  std::uint64_t place_of_move(const ForAction& action, const Executor::Place& place) const {
    return is_followed_ && action ? place.order : latest_;
  }
  /// Whether the schedule, too, has all of these before what stands at `place`.
  bool has_before(const Executor::Place& place,
                  std::span<const pipeline::Decision::EarlierForward> forwards) const;
  /// From now on operators run when they can. Tells why, once.
  void give_up(const std::string& why);

  /// Whether the program has to ask for more of them.
  bool are_followed() const { return is_followed_ && !has_ended_; }
  bool are_given_up() const { return has_given_up_ && layout_.is_listed; }
  /// Micro-batches of a pipeline that the program has to be ahead for the lists, at least.
  std::uint64_t lead() const { return lead_; }

 private:
  void begin(std::uint64_t micro_batches);
  void make_order(std::uint64_t micro_batches);
  Executor::Place place_of(bool is_backward, std::uint32_t stage, std::uint64_t turn) const;
  void tell(const std::string& why);

  const Layout& layout_;
  const Rank rank_;
  Executor& executor_;
  std::optional<pipeline::ActionOrder> order_;
  bool is_followed_ = false;  ///< In this step.
  bool has_ended_ = false;    ///< The program has asked for all of it.
  bool has_given_up_ = false;
  bool has_told_ = false;
  std::uint64_t lead_ = 0;
  std::uint64_t base_ = 0;         ///< Added to orders of this step.
  std::uint64_t first_phase_ = 0;  ///< Of this step.
  std::uint64_t phase_ = 0;
  std::uint64_t latest_ = 0;  ///< The highest order that the program has come to.
};

}  // namespace spillway::split
