#pragma once

#include <atomic>
#include <memory>

#include "interceptor.h"
#include "spillway/runtime/run.h"

namespace spillway::torch_binding {

/// Spillway in this process: a run whose tensors and operators are LibTorch's. Built once from the
/// settings, then there to the end. Leaked on purpose, because storages die after static
/// destructors have run.
class Core {
 public:
  /// Starts paging the trainer's CPU tensors. Throws one of Spillway's errors, with nothing changed
  /// in LibTorch. Call once, before a second thread uses LibTorch.
  static Core& start(const runtime::Settings& settings);

  /// The running instance, or null.
  static Core* running() noexcept;

  runtime::Runtime& runtime() { return run_.runtime(); }
  /// In a child that was made by fork(2) no operator is seen and nothing is counted: locks of the
  /// parent's other threads may be held for ever there.
  bool is_forked_child() const noexcept { return is_child_.load(); }
  /// Writes the statistics file and the summary: once, at exit or before a signal ends the process,
  /// and not in a forked child. Returns when they are written, whoever writes them.
  void finish(runtime::Runtime::Ending ending) noexcept;

 private:
  explicit Core(const runtime::Settings& settings);
  static void watch_forks();
  static void watch_endings();
  runtime::TrainerFacts trainer_facts() const;

  SteadyClock clock_;
  runtime::Run run_;
  std::unique_ptr<Interceptor> interceptor_;
  std::atomic<bool> is_child_{false};
};

}  // namespace spillway::torch_binding
