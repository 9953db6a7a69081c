#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/device/device.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/memory/page_memory.h"
#include "spillway/runtime/recording/profile_recording.h"
#include "spillway/runtime/recording/step_trace_recorder.h"
#include "spillway/runtime/recording/transfer_meter.h"
#include "spillway/runtime/runtime.h"
#include "spillway/runtime/settings/budget.h"
#include "spillway/runtime/settings/mapper_choice.h"
#include "spillway/runtime/settings/settings.h"
#include "spillway/runtime/settings/spill_directories.h"

namespace spillway::runtime {

/// Surroundings of a run; tests give their own.
struct RunSurroundings {
  topology::Machine machine;
  unsigned ranks_here = 1;  ///< Processes of the same job on the machine, this one included.
  MapperSurroundings mappers;
  DirectorySurroundings directories;
  Bytes pinned = {};                   ///< Host memory that stands behind devices already.
  std::vector<std::string> told = {};  ///< Warnings that were given already.
  unsigned ranks_on_gpu = 0;           ///< That use the GPU of this one; 0: they have not met.
};

/// A device with memory of its own that the program uses, opened.
struct DeviceSurroundings {
  device::DeviceId id;
  std::string name;  ///< Of the card: "NVIDIA H100 80GB HBM3".
  Bytes total;       ///< Its memory.
  std::shared_ptr<device::Device> device;
  std::unique_ptr<memory::PageMemory> pages;         ///< Of the device, not reserved yet.
  std::function<device::Event()> given_so_far = {};  ///< See RuntimeOptions.
  std::function<device::Event()> moment = {};        ///< The same, as the next two.
  std::function<void()> before_replay = {};
  std::function<void()> after_replay = {};
  /// What tells apart the streams that threads give work to; empty: there is one. Any thread.
  std::function<std::uint64_t()> stream = {};
  std::function<void()> others_give_back = {};  ///< See SwapEngineOptions.
  unsigned visible = 0;  ///< Devices of its kind that this process sees; 0: unknown.
  /// All ranks of the launcher on this host are known to see the same ones.
  bool sees_as_others = false;
};

/// This machine, as `settings` want to know it. Throws as `real_surroundings`.
RunSurroundings surroundings_of_this_process(const Settings& settings);

/// The parts of a run, in the order in which they are made, and what was chosen for them. The
/// runtime and its engine point to those above it.
struct RunParts {
  ResolvedBudget budget;
  memory::MapperKind mapper{};
  Bytes host_memory;  ///< Before the disks; 0: none.
  std::string store_name;
  std::vector<std::string> directories;
  Bytes endurance;  ///< Rated writes of all spill drives together; 0: they do not wear.
  std::shared_ptr<const planner::PlanFile> plan;  ///< Plan that the user gave it; may be null.
  std::string plan_elsewhere;                     ///< See `PlanningOptions::stored_elsewhere`.
  planner::TransferRates rates;                   ///< What plans begin with; as RuntimeOptions.
  std::optional<planner::FarTier> far;            ///< The same.
  std::vector<std::string> warnings;              ///< Given while it was built.
  std::unique_ptr<StepTraceRecorder> trace;       ///< With `trace` only.
  std::unique_ptr<ProfileRecording> recording;    ///< With `profile_out` only.
  std::unique_ptr<TransferMeter> transfers;
  std::unique_ptr<Runtime> runtime;
};

/// Makes the runtime that `settings` ask for. Tells its choices by the log. Throws one of
/// Spillway's errors for what cannot be, with nothing left behind. `clock` outlives the parts.
RunParts build_runtime(const Settings& settings, const RunSurroundings& surroundings,
                       const Clock& clock);

/// The same for a device beside the host, with the settings that concern it. The first build of a
/// process is the host's. Throws UnsupportedError for a device of too high a number
/// (Runtime::kMostRuntimes).
RunParts build_device_runtime(const Settings& settings, const RunSurroundings& surroundings,
                              const Clock& clock, DeviceSurroundings device);

}  // namespace spillway::runtime
