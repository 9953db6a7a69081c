#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/runtime/build_runtime.h"
#include "spillway/runtime/recording/step_trace_recorder.h"
#include "spillway/runtime/reporting/progress_display.h"
#include "spillway/runtime/reporting/run_statistics.h"

namespace spillway::runtime {

/// The program and its arguments; without /proc its name alone.
std::vector<std::string> words_of_this_process();

/// Facts about a run that only the adapter to the trainer's library knows.
struct TrainerFacts {
  std::string spillway_version;
  std::string libtorch_version;
  std::string dispatch_key;
  std::uint32_t threads = 1;  ///< Threads that the trainer's operators compute with.
  bool records_calls = true;  ///< False: no operator can run again.
  Bytes recorded_peak;        ///< As RunStatistics tells it.
  VerifiedReplays verified;   ///< The same.
};

/// Why a process could have used no GPU.
struct NoGpu {
  std::string reason{};     ///< Empty: it could.
  bool names_none = false;  ///< CUDA_VISIBLE_DEVICES names none that is there.
};

/// The traces for one file: of this rank, or of all.
struct RanksTrace {
  std::vector<profile::StepTrace> traces{};  ///< None: another rank writes that file.
  std::string summary{};
};

/// Traces of one process, from where the first of them begins.
RanksTrace on_one_axis(std::vector<RecordedTrace> all);

/// Spillway in a process, from the settings to the summary at the end: the runtime, what is shown
/// while it works, and the files that are left. Free of Torch.
class Run {
 public:
  /// Throws one of Spillway's errors for settings that cannot be followed.
  Run(const Settings& settings, const RunSurroundings& surroundings, const Clock& clock);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Runtime& runtime() { return *parts_.runtime; }
  const RunParts& parts() const { return parts_; }

  /// The runtime of a device with memory of its own: made by the first call for it, whose pages it
  /// takes. Lives as long as the run. Any thread. Throws as `build_device_runtime`.
  Runtime& add_device(DeviceSurroundings device);
  /// So many ranks use the GPU of this one, which is among them. Before that is added.
  void share_gpu(unsigned ranks) { surroundings_.ranks_on_gpu = ranks; }
  /// The program got no tensor of a device, and was told why: a run that then ends before its first
  /// step has no more to say. Any thread.
  void refuse_device() noexcept { is_refused_.store(true); }
  const Settings& settings() const { return settings_; }

  /// Asked at the end of the run, on the thread that ends it.
  std::function<TrainerFacts()> trainer_facts;
  /// The same, for a program that is split over ranks, with the statistics of this one.
  std::function<std::optional<RanksReport>(const RunStatistics&)> ranks_at_end;

  /// The same: makes of this rank's traces, that of the host and those of devices, what is to be
  /// written. Where it `joins` the ranks, the first one writes a file for all.
  std::function<RanksTrace(std::vector<RecordedTrace> mine, bool joins)> trace_of_ranks;

  /// The same, for a run that has used none.
  std::function<NoGpu()> why_no_gpu;

  /// The program fails: of a rank that has used no GPU, whether there was none for it.
  void warn_of_missing_gpu() const;

  /// Writes the files that the settings name and the summary: once. Returns when they are written,
  /// whoever writes them. What fails is told by the log and costs none of the others. Any thread.
  void finish(Runtime::Ending ending) noexcept;

  /// The drivers of devices end now, before the run does: takes the times that they tell, and stops
  /// moving what nobody waits for. Any thread.
  void before_drivers_end() noexcept;

  /// How the run went so far. Takes milliseconds: see Runtime::report.
  RunStatistics statistics() const;

 private:
  /// Of a device beside the host.
  struct DeviceRun {
    device::DeviceId id;
    std::string name;
    Bytes total;
    RunParts parts;
  };

  std::vector<const DeviceRun*> devices() const;
  RunStatistics statistics_of(const RunParts& parts) const;
  void show_progress(Duration step);
  void end_on_endless_op(Runtime& runtime);
  bool has_told_errors() const;
  void warn_of_needless_settings() const;
  bool is_told_by_another(const RunStatistics& mine) const;
  void tell_statistics(RunStatistics result, bool shows_summary);
  std::vector<const DeviceRun*> profiled_devices() const;
  void write_profiles();
  void write_profile(const RunParts& parts, const std::string& device);
  std::vector<RecordedTrace> recorded_traces() const;
  void write_trace();
  void end_once_recorded();
  void warn_of_unrecorded_steps();
  [[noreturn]] void end_after_recording() noexcept;

  Settings settings_;
  RunSurroundings surroundings_;  ///< Changed by `add_device`.
  const Clock& clock_;
  TimePoint start_;
  const std::uint64_t errors_before_;    ///< Those that were told when the run began.
  const std::string statistics_before_;  ///< State of their file when the run began.
  RunParts parts_;
  std::mutex adding_mutex_;           ///< Held while a runtime is built, which takes its time.
  mutable std::mutex devices_mutex_;  ///< Of the list alone.
  std::vector<std::unique_ptr<const DeviceRun>> devices_;
  ProgressDisplay progress_;
  std::atomic<std::uint64_t> boundaries_{0};  ///< Between steps, of the host's runtime.
  std::mutex finish_mutex_;
  bool is_finished_ = false;
  bool has_no_work_ = false;  ///< Of a split program without tensors: no file is worth it.
  std::atomic<bool> is_refused_{false};
};

}  // namespace spillway::runtime
