#pragma once

#include <optional>
#include <span>
#include <vector>

#include "spillway/base/autograd_facts.h"
#include "spillway/profile/step_tape.h"

namespace spillway::profile {

inline constexpr OpIndex kNoForward = static_cast<OpIndex>(-1);  ///< None, or unknown.

/// Of operators in the order in which they ran: the one that each computes gradients for, or
/// computes anew, by the node that backward ran then; kNoForward outside of backward, and in nodes
/// of operators that are not among them. A node that nobody was seen to make (that of a view, say)
/// belongs to the last operator before it. Of several operators with one node (a custom Function)
/// it is the first. The forward of an operator in backward (double backward, checkpointing) may be
/// in backward itself; it is always an earlier one.
std::vector<OpIndex> forward_operators(std::span<const AutogradFacts> ops);

/// The last operator before the first one of backward; none without either.
std::optional<OpIndex> forward_end_of(std::span<const OpPhase> phases);

}  // namespace spillway::profile
