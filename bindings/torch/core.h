#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "interceptor.h"
#include "spillway/runtime/recording/profile_recording.h"
#include "spillway/runtime/recording/step_trace_recorder.h"
#include "spillway/runtime/recording/transfer_meter.h"
#include "spillway/runtime/reporting/run_statistics.h"
#include "spillway/runtime/runtime.h"
#include "spillway/runtime/settings/budget.h"
#include "spillway/runtime/settings/settings.h"

namespace spillway::torch_binding {

/// Spillway in this process: built once from the settings, then there to the end. Leaked on
/// purpose, because storages die after static destructors have run.
class Core {
 public:
  /// Starts paging the trainer's CPU tensors. Throws one of Spillway's errors, with nothing changed
  /// in LibTorch. Call once, before a second thread uses LibTorch.
  static Core& start(const runtime::Settings& settings);

  /// The running instance, or null.
  static Core* running() noexcept;

  runtime::Runtime& runtime() { return *runtime_; }
  /// In a child that was made by fork(2) no operator is seen and nothing is counted: locks of the
  /// parent's other threads may be held for ever there.
  bool is_forked_child() const noexcept { return is_child_.load(); }
  /// Writes the statistics file and the summary: once, at exit or before a signal ends the process,
  /// and not in a forked child. Returns when they are written, whoever writes them.
  void finish(runtime::Runtime::Ending ending) noexcept;

 private:
  explicit Core(const runtime::Settings& settings);
  std::unique_ptr<swap::SwapEngine> make_engine(runtime::RuntimeOptions& options,
                                                unsigned processors);
  void watch_forks();
  void watch_endings();
  void show_progress(Duration step);
  runtime::RunStatistics statistics() const;  ///< For the end: see Runtime::report.
  void tell_statistics();
  void write_profile();
  void write_trace();
  static std::string output_path(const std::string& pattern);
  [[noreturn]] void end_after_recording() noexcept;

  runtime::Settings settings_;
  SteadyClock clock_;
  TimePoint start_;
  runtime::ResolvedBudget budget_;
  memory::MapperKind mapper_{};
  std::string store_name_;
  std::vector<std::string> directories_;
  std::uint64_t wearing_directories_ = 0;  ///< Those that are no RAM disk.
  std::unique_ptr<runtime::ProfileRecording> recording_;
  std::shared_ptr<const runtime::PlanFile> plan_;  ///< That the user gave; may be null.
  std::unique_ptr<runtime::StepTraceRecorder> trace_;
  std::unique_ptr<runtime::TransferMeter> transfers_;
  std::unique_ptr<runtime::Runtime> runtime_;
  std::unique_ptr<Interceptor> interceptor_;
  bool shows_progress_ = false;
  bool shares_terminal_ = false;  ///< The program's output and the progress.
  TimePoint last_progress_{};
  std::atomic<std::uint64_t> steps_shown_{0};
  std::mutex progress_mutex_;
  swap::StoreReport last_report_;
  std::mutex finish_mutex_;
  bool finished_ = false;
  std::atomic<bool> is_child_{false};
};

}  // namespace spillway::torch_binding
