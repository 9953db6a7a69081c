#include "action_lists.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "first_rank.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"

namespace spillway::split {

ActionLists::ActionLists(const Layout& layout, Rank rank, Executor& executor)
    : layout_(layout), rank_(rank), executor_(executor), has_given_up_(!layout.is_listed) {
  if (!has_given_up_ && layout.actions) begin(0);
}

void ActionLists::begin_step(std::uint64_t micro_batches) {
  base_ = std::max(latest_, base_ + (order_ ? order_->last() + 1 : 0));
  first_phase_ = phase_ + 2;
  is_followed_ = false;
  has_ended_ = false;
  has_given_up_ |= executor_.has_given_up_list();
  if (!has_given_up_)
    begin((micro_batches + layout_.placement.pipelines() - 1) / layout_.placement.pipelines());
}

void ActionLists::make_order(std::uint64_t micro_batches) {
  const bool is_known = order_ && (layout_.actions.has_value() || order_->turns() == micro_batches);
  if (is_known) return;
  order_.reset();
  try {
    order_ = layout_.order_for(micro_batches);
  } catch (const Error& error) {
    tell(error.what());
  }
}

void ActionLists::begin(std::uint64_t micro_batches) {
  make_order(micro_batches);
  const std::uint32_t ranks = layout_.placement.ranks() / layout_.placement.pipelines();
  lead_ = 0;
  if (!order_) {
    executor_.begin_list({}, layout_.windows[rank_.value()]);
    return;
  }
  if (micro_batches != 0 && micro_batches != order_->turns())
    tell(message("a pipeline's step has {} micro-batches, and the plan lists {}; those beyond "
                 "run when they can, behind the others",
                 micro_batches, order_->turns()));
  is_followed_ = true;
  const std::uint32_t number = rank_.value() % ranks;
  std::vector<pipeline::ListedAction> list = order_->list_of(number);
  for (pipeline::ListedAction& action : list) {
    action.order += base_;
    action.phase += first_phase_;
  }
  executor_.begin_list(list, order_->window_of(number));
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    lead_ = std::max(lead_, order_->window_of(rank));
}

void ActionLists::end_step() {
  has_ended_ = true;
  if (is_followed_) executor_.end_list();
}

Executor::Place ActionLists::come_to(const ForAction& action) {
  if (!is_followed_ || !action) return {};
  const bool is_backward = action->kind != schedule::ActionKind::kForward;
  const std::uint64_t phase =
      first_phase_ + 2 * std::uint64_t{action->micro_batch} + (is_backward ? 1 : 0);
  if (phase > phase_) {
    phase_ = phase;
    executor_.come_to_phase(phase);
  }
  const Executor::Place place = place_of(is_backward, action->stage, action->micro_batch);
  latest_ = std::max(latest_, place.order_of_rest);
  return place;
}

/// What is not listed stands behind the list.
Executor::Place ActionLists::place_of(bool is_backward, std::uint32_t stage,
                                      std::uint64_t turn) const {
  const auto listed = order_->place_of(is_backward, stage, turn);
  const std::uint64_t behind = base_ + order_->last() + 1;
  return listed ? Executor::Place{base_ + listed->order, base_ + listed->order_of_rest}
                : Executor::Place{behind, behind};
}

/// Those of one number are pipelines by turns, the earlier micro-batch's first.
bool ActionLists::has_before(const Executor::Place& place,
                             std::span<const pipeline::Decision::EarlierForward> forwards) const {
  if (place.order == 0) return true;  // Of no list.
  return std::all_of(forwards.begin(), forwards.end(), [&](const auto& forward) {
    const std::uint64_t turn = forward.micro_batch / layout_.placement.pipelines();
    return place_of(false, forward.stage, turn).order <= place.order;
  });
}

void ActionLists::give_up(const std::string& why) {
  if (has_given_up_) return;
  has_given_up_ = true;
  is_followed_ = false;
  lead_ = 0;
  tell(why);
  executor_.give_up_list();
}

void ActionLists::tell(const std::string& why) {
  if (std::exchange(has_told_, true) || rank_ != kFirst) return;
  log_info("ranks do not keep to the lists of {}, but compute what they can: {}", layout_.schedule,
           why);
}

}  // namespace spillway::split
