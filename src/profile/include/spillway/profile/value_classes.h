#pragma once

#include <span>
#include <vector>

#include "spillway/profile/step_tape.h"
#include "spillway/profile/storage_class.h"

namespace spillway::profile {

/// What each value holds. `noted` is what is known already, per value: parameters and gradients.
/// The rest follows from lives and uses:
///  * born and dead in the step: activation;
///  * carried in, surviving and written, first touched after the first gradient was born or
///  written:
///    optimizer state; before that: buffer, as running means are;
///  * carried in, surviving and used, but never written: buffer;
///  * carried in and dead in the step, never written: input; and what becomes one as well;
///  * anything else: unknown.
std::vector<StorageClass> classify_values(const StepTape& tape,
                                          std::span<const StorageClass> noted);

}  // namespace spillway::profile
