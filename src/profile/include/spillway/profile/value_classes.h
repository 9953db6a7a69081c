#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/base/bytes.h"
#include "spillway/profile/step_tape.h"
#include "spillway/profile/storage_class.h"

namespace spillway::profile {

/// What each value holds. `noted` is what is known already, per value: parameters and gradients.
/// The rest follows from lives and uses:
///  * born and dead in the step: activation, or workspace where the optimizer's update has begun by
///    then, with the first use of its states or write to a parameter behind the first gradient;
///  * carried in, surviving and written, first touched after the first gradient was born or
///  written:
///    optimizer state; before that: buffer, as running means are;
///  * carried in, surviving and used, but never written: buffer;
///  * carried in and dead in the step, never written: input; and what becomes one as well;
///  * anything else: unknown.
std::vector<StorageClass> classify_values(const StepTape& tape,
                                          std::span<const StorageClass> noted);

/// "activation 31": how predicted and measured steps name a value. The number is that of the tape.
std::string value_name(StorageClass holds, ValueIndex value);

/// "activation 31 of 64.0 MiB from aten::relu"; an empty `made_by` is left out.
std::string value_text(StorageClass holds, ValueIndex value, Bytes bytes, std::string_view made_by);

}  // namespace spillway::profile
