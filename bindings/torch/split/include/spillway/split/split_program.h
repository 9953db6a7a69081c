#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Allocator.h>
#include <c10/core/DispatchKeySet.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/phantoms/output_memo.h"
#include "spillway/pipeline/agreement/job.h"
#include "spillway/runtime/recording/op_text.h"
#include "spillway/runtime/reporting/ranks_report.h"
#include "spillway/runtime/run.h"
#include "spillway/runtime/runtime.h"
#include "spillway/split/shards.h"
#include "spillway/split/split_placement.h"
#include "spillway/transport/transport.h"

namespace spillway::split {

/// Runs a kernel whose arguments lie on the stack, bracketed by the runtime, and leaves its results
/// there. `below`: the keys from the kernel on. Any thread.
using Compute = void (*)(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                         torch::jit::Stack& stack, const runtime::OpTraits& traits);

/// Runs something of Spillway's own that uses memory of a GPU, as one operator of its runtime, and
/// with the turn: a copy, or the trial of an operator. `shown`: the arguments of `op`, for people.
/// `used`: those of them that `run` uses; what it makes itself is none of them. Any thread. Throws
/// what `run` throws, and c10::OutOfMemoryError where the budget is too small for it.
using RunBeside = void (*)(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> shown,
                           c10::ArrayRef<c10::IValue> used, const std::function<void()>& run);

struct SplitOptions {
  runtime::Runtime& runtime;
  transport::Transport& transport;      ///< Of this rank's shard,
  transport::Transport& job_transport;  ///< and of all ranks of all of them.
  pipeline::Job& job;
  std::optional<ExchangeGroup> exchange;  ///< Of several shards.
  std::vector<std::string> hosts{};       ///< Of each rank.
  const Layout& layout;
  std::string plan{};  ///< File that the layout is from, or empty.
  /// Operators that use no storage as large are not counted by plans.
  Bytes min_storage{std::uint64_t{1} << 20};
  bool traces = false;                   ///< What each rank does for which micro-batch is noted.
  std::vector<std::string> replicate{};  ///< Operators whose parameters all ranks keep.
  bool rebalances = true;                ///< The model may be cut anew (pipeline/balance).
  c10::DispatchKeySet hidden_keys{};     ///< At which operators are intercepted.
  Compute compute = nullptr;
  RunBeside run_beside = nullptr;
  decltype(phantoms::OutputMemoOptions::try_on_gpu) try_on_gpu = nullptr;
  /// The runtime of this rank's GPU; null: it has none, or none yet. Any thread.
  runtime::Runtime* (*runtime_of_gpu)() noexcept = nullptr;
  /// Storages of that device from that size on have pages, which move.
  Bytes (*least_paged)(c10::Device gpu) = nullptr;
  /// Of the allocator that tells `ended` of what it frees.
  c10::DeleterFnPtr deleter = nullptr;
};

/// One program on all ranks of a job, of which this is one. Each rank runs the whole program; an
/// operator is computed by its owner (pipeline/ownership), later, in a queue, and the program goes
/// on with phantoms of its results, on the owner too. What an owner lacks of its inputs is sent to
/// it. Where the program wants to see bytes it waits for them. Only the thread that made it is
/// split: what other threads compute, each rank computes for itself. One per process, and it stays
/// to the end.
class SplitProgram {
 public:
  /// All ranks of the job at once. Throws TransportError.
  explicit SplitProgram(SplitOptions options);
  ~SplitProgram();
  SplitProgram(const SplitProgram&) = delete;
  SplitProgram& operator=(const SplitProgram&) = delete;

  /// That of this process, or null.
  static SplitProgram* running() noexcept { return running_.load(std::memory_order_relaxed); }
  bool is_on_this_thread() const noexcept;
  /// Whether the program's thread is in an operator. On that thread, a signal handler too.
  bool is_in_call() const noexcept;
  /// In the parent of a child that is about to be made by fork(2).
  static void before_fork() noexcept;
  /// In the child: the parent's program goes on without it.
  static void leave_to_parent() noexcept {
    is_left_to_parent_.store(running() != nullptr);
    running_.store(nullptr);
  }

  /// Whether an outermost operator is a composite one that each rank runs for its parts, which come
  /// by on their own. Else `run` follows, with what autograd makes of it.
  bool is_in_parts(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);
  /// Takes the arguments from the stack and leaves results there. Throws what the operator throws
  /// where all ranks compute it; where one does, that ends the job.
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack,
           const runtime::OpTraits& traits);

  /// Another thread runs an operator. Ends the job where its tensors lie on other ranks.
  void check_other_thread(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

  // What a program does past the operators: SpillwayHooks with these names (preload/hooks.h).

  /// Whether a handler of the program waits until all ranks run it.
  static int hold_signal(int signal) noexcept;
  /// Brings the bytes to all ranks, whose programs all come by here. Not inside of an operator.
  /// Where a pointer may be kept, they stay there: all ranks compute what writes them from now on.
  static void before_pointer(const void* tensor, int writes);
  /// The first rank gets the bytes, from whoever holds them; in the archives of the others, which
  /// are nobody's, AbsentBytes stand for them.
  static const void* archived_tensor(const void* tensor);
  static const void* archived_bytes(const void* memory, std::size_t size);
  static std::size_t absent_bytes(const void* memory, std::size_t size) noexcept;
  /// The bytes of large records stay in their files until this rank needs them (RecordMemory). An
  /// archive of this run's own has them on the first rank alone: that holds what is read.
  static void read_record(void (*function)(), void* result, void* reader, const void* name,
                          const void* allocator);
  static int read_part(int file, void* memory, std::size_t size, off_t from);
  static int keeps_file(dev_t device, ino_t inode);
  /// Waits until what was called under the present flags of the process is done.
  static void before_flag();
  /// Shards know the parameters of one another by the order in which they come to be leaves, and
  /// data that are such leaves, too, from those.
  static void leaf_made(void* tensor);
  static void parameter_registered(const void* parameter);
  /// Whether a node of autograd that this thread makes now would be made by LibTorch's thread for
  /// backward on a GPU, which is the program's here, and counts its own.
  static int numbers_apart();

  /// The program, or a system call of it, is about to read or write memory that is not there. Ends
  /// the job with a sentence that names the tensor; in a forked child it tells it and returns.
  static void read_past_operators(const void* address) noexcept;

  /// This rank alone cannot have its GPU: ends the job with that sentence, where the program is
  /// split. Any thread.
  static void refuse_gpu(const std::string& reason);

  /// The program says that its next micro-batch begins: from now on only that counts.
  void begin_micro_batch();
  /// The program's main has returned, or it exits: does what is left to do for it, while what its
  /// libraries have made is still there.
  static void program_ends() noexcept;
  // The program has ended by itself: one after the other. They throw TransportError.
  void drain();  ///< Does what is left to do for it.
  /// The first rank gets a row of each rank, without its host; others give theirs, and get none.
  /// `mine` comes with what is not known here.
  std::vector<runtime::RanksReport::Row> gather(const runtime::RankFigures& mine);
  /// Adds what it knows of the steps to the first of the traces, the host's: messages, and what was
  /// computed for which stage and micro-batch. Where it `joins` all ranks do, and the first one
  /// gets all traces on one time axis, others none.
  runtime::RanksTrace trace(std::vector<runtime::RecordedTrace> mine, bool joins);
  runtime::LayerMoves layer_moves() const;  ///< On the first rank.
  /// Whether ranks were to keep to the lists of a schedule, and have given them up.
  bool has_given_up_lists() const;
  /// Waits until that is so on all ranks. Nothing is split from then on, and the transport is not
  /// used any more.
  void finish();

  /// The memory at that address is about to be freed. Any thread.
  static void ended(const void* address) noexcept {
    if (SplitProgram* const program = running()) program->note_ended(address);
  }

 private:
  class Impl;
  void note_ended(const void* address) noexcept;

  static inline std::atomic<SplitProgram*> running_{nullptr};
  static inline std::atomic<bool> is_left_to_parent_{false};
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::split
