#pragma once

#include <memory>

#include "interceptor.h"
#include "spillway/runtime/runtime.h"
#include "settings.h"

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

  /// Writes the statistics file and the summary. At exit, once.
  void finish() noexcept;

 private:
  explicit Core(const runtime::Settings& settings);
  void watch_forks();
  void show_progress(Duration step);

  runtime::Settings settings_;
  SteadyClock clock_;
  std::unique_ptr<runtime::Runtime> runtime_;
  std::unique_ptr<Interceptor> interceptor_;
  std::string mapper_name_;
  bool is_child_ = false;
};

}  // namespace spillway::torch_binding
