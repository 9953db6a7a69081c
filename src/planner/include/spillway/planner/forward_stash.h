#pragma once

#include <cstdint>
#include <vector>

#include "spillway/profile/step_tape.h"

namespace spillway::planner {

using profile::OpIndex;
using profile::StepTape;
using profile::ValueIndex;

/// A value that forward leaves for backward.
struct StashedValue {
  ValueIndex value = 0;
  std::uint32_t pages = 0;
  OpIndex birth = 0;
  OpIndex after = 0;     ///< The last operator of forward that touches it.
  OpIndex next = 0;      ///< The first operator of backward that uses it.
  OpIndex last_use = 0;  ///< The last one.
};

/// Values that live from forward to backward. Tapes of recorded steps tell where forward ends
/// (`StepTape::forward_end`). It is guessed for the others: forward ends with the operator behind
/// which most pages of values wait that are born and die within the step. Values that are used last
/// by an operator that writes carried-in ones (gradients, which wait for the optimizer) do not
/// count. Where the first gradient is larger than all that the last layer leaves, the guess is an
/// operator too late, or a few.
struct ForwardStash {
  OpIndex forward_end = 0;           ///< The last operator of forward.
  std::vector<StashedValue> values;  ///< By birth.
};

/// The tape is consistent and has an operator.
ForwardStash find_stash(const StepTape& tape);

/// The same where the caller knows which operator of the tape is the last one of forward.
ForwardStash find_stash(const StepTape& tape, OpIndex forward_end);

}  // namespace spillway::planner
