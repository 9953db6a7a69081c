#include "running_call.h"

#include <algorithm>

#include "spillway/base/assert.h"
#include "spillway/recompute/generators.h"
#include "spillway/recompute/operator_rules.h"

namespace spillway::split {
namespace {

using pipeline::OperatorUse;
using pipeline::StorageOrdinal;

constexpr std::size_t kFew = 16;

}  // namespace

std::size_t CallUses::number_of(StorageOrdinal storage) {
  if (uses_.size() <= kFew) {
    const auto found = std::find_if(uses_.begin(), uses_.end(),
                                    [&](const OperatorUse& use) { return use.storage == storage; });
    SPILLWAY_ASSERT(found != uses_.end());
    return static_cast<std::size_t>(found - uses_.begin());
  }
  number_all();
  return first_.at(storage).number;
}

bool CallUses::is_written(StorageOrdinal storage) {
  if (uses_.size() <= kFew)
    return std::any_of(uses_.begin(), uses_.end(), [&](const OperatorUse& use) {
      return use.storage == storage && use.writes;
    });
  number_all();
  return first_.at(storage).is_written;
}

/// A list operator has thousands.
void CallUses::number_all() {
  if (!first_.empty()) return;
  for (std::size_t i = 0; i < uses_.size(); ++i)
    first_.try_emplace(uses_[i].storage, First{i, false}).first->second.is_written |=
        uses_[i].writes;
}

bool RunningCall::makes_more_than(std::size_t read) const {
  if (std::any_of(uses.all().begin(), uses.all().end(),
                  [](const OperatorUse& use) { return use.writes; }))
    return true;
  if (outputs->making != phantoms::Making::kPhantoms) return false;
  std::size_t made_bytes = 0;
  for (const std::size_t bytes : outputs->storages) made_bytes += bytes;
  return made_bytes >= read;
}

at::Generator generator_of(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  return recompute::generator_of(arguments, recompute::rules_of(op).generator_argument);
}

}  // namespace spillway::split
