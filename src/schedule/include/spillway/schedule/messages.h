#pragma once

#include <cstdint>
#include <optional>

#include "spillway/schedule/schedule.h"
#include "spillway/schedule/weight_copies.h"

namespace spillway::schedule {

/// Whether it sends or receives weights or gradients of a whole stage.
bool is_of_parameters(ActionKind kind);

/// Whether any action list sends or receives activations or gradients of micro-batches.
bool has_messages(const Schedule& schedule);

/// The rank at the other end of a send or receive; nothing, when there is none.
std::optional<std::uint32_t> peer_of(const Schedule& schedule, const WeightCopies& copies,
                                     std::uint32_t rank, const Action& action);

/// The action that the peer must do for it. There must be one.
Action match_of(const Schedule& schedule, const Action& action);

}  // namespace spillway::schedule
