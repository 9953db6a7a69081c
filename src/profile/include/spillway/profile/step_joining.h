#pragma once

#include <span>

#include "spillway/profile/tape_recorder.h"

namespace spillway::profile {

/// Joins consecutive recorded steps into one tape that repeats: a storage that lives on from one
/// step to the next becomes one value, and `becomes` ties the end of the last step to the begin of
/// the first. For that, `before` is the step recorded right before the first one; when it does not
/// end like the last step, or is null, survivors are recognised by storage and place of birth.
/// All steps must be whole.
RecordedStep join_steps(std::span<const RecordedStep* const> steps, const RecordedStep* before);

}  // namespace spillway::profile
