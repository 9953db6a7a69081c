#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "interceptor.h"
#include "spillway/runtime/run.h"
#include "spillway/split/shards.h"
#include "spillway/split/split_program.h"
#include "spillway/transport/mpi.h"

/// Of this library, for whoever has loaded it: see preload/hooks.h.
extern "C" __attribute__((visibility("default"))) void spillway_core_is_loaded();

namespace spillway::torch_binding {

/// Spillway in this process: a run whose tensors and operators are LibTorch's. Built once from the
/// settings, then there to the end. Leaked on purpose, because storages die after static
/// destructors have run.
class Core {
 public:
  /// Starts paging the trainer's CPU tensors. Throws one of Spillway's errors, with nothing changed
  /// in LibTorch. Call once, before a second thread uses LibTorch.
  static Core& start(const runtime::Settings& settings);

  /// Where the settings say so, splits the program over the ranks of the job, and waits for those.
  /// Throws as `start`. Once, right after it, but not while a library is being loaded: MPI loads
  /// others on a thread of its own.
  void join_ranks();
  /// Whether a rank of a split program has started this process, which then is none: data loaders,
  /// an evaluation. It pages alone.
  static bool is_started_by_rank();
  /// Of a rank that could not start: tells the others, which end, too. Throws as `start`, the same
  /// on all ranks.
  [[noreturn]] static void refuse_ranks(const std::string& reason);

  /// The running instance, or null.
  static Core* running() noexcept;

  runtime::Run& run() { return run_; }
  runtime::Runtime& runtime() { return run_.runtime(); }  ///< The host's.
  /// Null where the program is not split over ranks.
  split::SplitProgram* split() { return split_.get(); }
  const transport::Transport* transport() const { return transport_.get(); }
  const split::Shards* shards() const { return shards_.get(); }
  /// In a child that was made by fork(2) no operator is seen and nothing is counted: locks of the
  /// parent's other threads may be held for ever there.
  bool is_forked_child() const noexcept { return is_child_.load(); }
  /// Writes the statistics file and the summary: once, at exit or before a signal ends the process,
  /// and not in a forked child. Returns when they are written, whoever writes them.
  void finish(runtime::Runtime::Ending ending) noexcept;
  /// The program is about to end with another code than 0: what may be the cause. On any thread.
  void tell_of_failure() noexcept;
  /// Before _exit: of a split program what `finish` does, on its thread.
  void leave() noexcept;

 private:
  explicit Core(const runtime::Settings& settings);
  static void watch_forks();
  /// Whether this is the thread of a split program, and not in the middle of an operator: what a
  /// signal handler has interrupted may hold any lock.
  bool is_between_operators() const noexcept;
  static void watch_endings();
  void answer_signals();
  void say_what_it_does();
  void split_over_ranks();
  runtime::TrainerFacts trainer_facts() const;
  /// On the first rank of a split program; nothing on others.
  std::optional<runtime::RanksReport> gather(const runtime::RunStatistics& mine);
  runtime::RanksTrace trace_of_ranks(std::vector<runtime::RecordedTrace> mine, bool joins);

  SteadyClock clock_;
  runtime::Run run_;
  std::unique_ptr<Interceptor> interceptor_;
  std::unique_ptr<transport::MpiTransport> transport_;  ///< Of a program that is split over ranks.
  std::unique_ptr<split::Shards> shards_;
  std::optional<split::Layout> layout_;
  std::unique_ptr<split::SplitProgram> split_;
  std::mutex saying_;                    ///< Of `said_`, while it says what it does.
  pipeline::Job* said_ = nullptr;        ///< Null: it is not split, or has ended.
  std::atomic<bool> is_drained_{false};  ///< It has ended by itself, and no task of it is left.
  std::atomic<bool> is_child_{false};
  const pid_t process_ = ::getpid();  ///< A child of vfork has this object, too.
};

}  // namespace spillway::torch_binding
