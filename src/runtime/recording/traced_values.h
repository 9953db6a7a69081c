#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "spillway/profile/tape_recorder.h"
#include "spillway/runtime/recording/step_trace_recorder.h"

namespace spillway::runtime {

/// Which value a storage is in one step.
struct TracedValue {
  profile::ValueIndex index = profile::kNoValue;
  profile::StorageClass holds = profile::StorageClass::kUnknown;
  bool is_carried_in = false;
};

/// By number of the storage.
using TracedValues = std::unordered_map<std::uint64_t, TracedValue>;

/// The values of a step, whose origins name slots of storages (StepTraceRecorder::note_values).
/// `before` was recorded right before it, or is null. `births` are those of the step and, behind
/// them, of all later ones; the first `own` are the step's. `storages` has the number of the latest
/// storage of each slot. Storages that a plan moves in pieces are left out: they are several
/// values.
TracedValues traced_values(const profile::RecordedStep& step, const profile::RecordedStep* before,
                           std::span<const StorageBirth> births, std::size_t own,
                           std::span<const std::uint64_t> storages);

}  // namespace spillway::runtime
