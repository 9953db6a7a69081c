#pragma once

#include <optional>

#include "spillway/planner/schedule/schedule_check.h"
#include "spillway/planner/schedule/weight_copies.h"

namespace spillway::planner {

/// Whether any list sends or receives activations or gradients of micro-batches.
bool has_messages(const Schedule& schedule);

/// The rank at the other end of a send or receive; nothing, when there is none.
std::optional<std::uint32_t> peer_of(const Schedule& schedule, const WeightCopies& copies,
                                     std::uint32_t rank, const Action& action);

/// The action that the peer must do for it. There must be one.
Action match_of(const Schedule& schedule, const Action& action);

/// Messages that miss their other end, or stand at the wrong side of the compute they belong to.
std::optional<ScheduleFault> message_fault(const Schedule& schedule, const WeightCopies& copies);

/// The first receive that expects another message than the one that comes.
std::optional<ScheduleFault> order_fault(const Schedule& schedule, const WeightCopies& copies);

}  // namespace spillway::planner
