#pragma once

#include <c10/util/ScopeExit.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "action_lists.h"
#include "deferred_calls.h"
#include "device_bytes.h"
#include "device_messages.h"
#include "device_rules.h"
#include "executor.h"
#include "gradient_means.h"
#include "parameter_order.h"
#include "pending_calls.h"
#include "program_archives.h"
#include "program_data.h"
#include "program_lead.h"
#include "program_memory.h"
#include "program_steps.h"
#include "rank_log.h"
#include "replicated_operators.h"
#include "running_call.h"
#include "shard_exchange.h"
#include "spillway/phantoms/output_memo.h"
#include "spillway/phantoms/trial_memory.h"
#include "spillway/pipeline/ownership/ownership.h"
#include "spillway/pipeline/ownership/stage_marks.h"
#include "spillway/recompute/operator_rules.h"
#include "spillway/split/split_program.h"
#include "split_notices.h"
#include "storage_table.h"

namespace spillway::split {

/// The order of things: what happens at each operator, pointer and archive of the program, one
/// after the other. What it is that happens, the parts know.
class SplitProgram::Impl {
 public:
  explicit Impl(SplitOptions options);

  bool is_on_this_thread() const noexcept { return std::this_thread::get_id() == thread_; }
  bool is_in_call() const noexcept { return is_in_call_ || phantoms::is_on_trial(); }
  bool is_in_parts(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack,
           const runtime::OpTraits& traits);
  void check_other_thread(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

  /// Not `keeps`: it is read at once; of a GPU, by a copy to the host that the next operator makes.
  void before_pointer(const at::TensorBase& tensor, bool writes, bool keeps);
  const void* archived_bytes(const void* memory, std::size_t size);
  const at::Tensor& archived_tensor(const at::Tensor& tensor);
  std::size_t absent_bytes(const void* memory, std::size_t size) const noexcept {
    return archives_.zeroes_at_end_of(memory, size);
  }
  void record_read(const c10::DataPtr& memory, std::size_t size) {
    archives_.record_read(memory, size, is_on_this_thread());
  }
  void before_flag();
  bool numbers_apart() const;
  void leaf_made(c10::TensorImpl& leaf) {
    if (shards_ && may_ask()) order_.leaf_made(leaf);
  }
  void parameter_registered(const at::Tensor& parameter) {
    if (may_ask()) order_.registered(parameter);
  }
  /// In a signal handler, on the thread that has touched memory which is not there: it holds no
  /// lock of ours.
  void read_past_operators(const void* address);
  void before_fork() noexcept;

  void begin_micro_batch();
  void program_ends() noexcept;
  /// Ends the job for what the program does on this thread, and tells where it is.
  [[noreturn]] void refuse(const std::string& reason);
  void drain();
  std::vector<runtime::RanksReport::Row> gather(runtime::RankFigures mine);
  runtime::RanksTrace trace(std::vector<runtime::RecordedTrace> mine, bool joins);
  bool has_given_up_lists() const { return lists_.are_given_up(); }
  runtime::LayerMoves layer_moves() const { return steps_.layer_moves(); }
  void finish();
  void ended(const void* address) noexcept;

 private:
  bool may_ask() const { return is_on_this_thread() && !is_in_call(); }
  void run_called(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                  torch::jit::Stack& stack, const runtime::OpTraits& traits);
  const pipeline::StorageFacts* facts_of(const at::Tensor& tensor);
  void begin_call();
  /// The program is in here, or in a kernel that it runs from here, as long as what this returns
  /// lives.
  [[nodiscard]] auto call_mark() {
    begin_call();
    return c10::make_scope_exit([this] { is_in_call_ = false; });
  }
  void begin_uses(const CalledOperator& called);
  void begin_step_before(const CalledOperator& called);
  void collect_uses(const CalledOperator& called);
  void collect_parts(const CalledOperator& called, const recompute::OperatorRules& rules);
  void note_loaded();
  void leave_to_program(pipeline::StorageOrdinal ordinal, c10::StorageImpl& alias,
                        std::string_view name);
  void keep_everywhere(pipeline::StorageOrdinal ordinal);
  void show(c10::StorageImpl& storage, const pipeline::OperatorUse& use);
  void look_at_device(const CalledOperator& called);
  void meet(std::string_view call);
  void start_device_messages();
  void stop_device_messages();
  bool moves_parameter(const CalledOperator& called) const;
  void note_of_device(pipeline::StorageOrdinal ordinal, const at::Tensor& tensor, bool reads);
  void look_for_parameters();
  void look_for_stage(std::string_view name);
  pipeline::StorageOrdinal parameter_that_accumulates();
  void add_draws(const CalledOperator& called);
  void describe(const CalledOperator& called, pipeline::OperatorCall& call);
  void decide(pipeline::OperatorCall& call);
  void forget_ended();
  void compare_data();
  void look_at_order(const CalledOperator& called);
  ForAction action_of(OpPhase phase) const;
  void average(const std::vector<GradientMeans::Storages>& means);
  void average_together(const GradientMeans::Storages& storages);
  void add_move(const pipeline::Move& move);
  void free_stale();
  void show_uses(std::string_view who);
  void compute_now(const CalledOperator& called);
  [[noreturn]] void end_alone(std::string_view name, const std::exception& error);
  void queue(const CalledOperator& called, bool is_deferred);
  std::optional<std::uint64_t> segment() const;
  void name_results(const CalledOperator& called);

  runtime::Runtime& runtime_;
  transport::Transport& transport_;
  pipeline::Job& job_;
  const Compute compute_;
  const std::thread::id thread_ = std::this_thread::get_id();
  pipeline::Ownership ownership_;
  pipeline::StageMarks marks_;
  const std::string plan_;
  const Bytes min_storage_;
  ReplicatedOperators replicated_;
  phantoms::OutputMemo memo_;
  const DeviceBytes devices_;
  DeviceMessages between_devices_;
  ParameterOrder order_;
  StorageTable storages_;
  ProgramData data_;
  const std::unique_ptr<RankLog> log_;           ///< Null: no trace is wanted.
  const std::unique_ptr<ShardExchange> shards_;  ///< Null: there is one.
  Executor executor_;
  ActionLists lists_;
  ProgramLead lead_;
  DeferredCalls deferred_;
  ProgramMemory memory_;
  PendingCalls pending_;
  const std::unique_ptr<GradientMeans> means_;  ///< With several shards.
  ProgramArchives archives_;
  ProgramSteps steps_;
  SplitNotices notices_;
  std::uint64_t calls_ = 0;  ///< Of operators, as on all ranks.
  bool is_in_call_ = false;
  bool uses_gpu_ = false;
  bool takes_threads_place_ = false;  ///< Backward on the GPU would have a thread of its own.
  std::optional<pipeline::StorageOrdinal> read_next_;  ///< See before_pointer.
  bool has_asked_devices_ = false;                     ///< Whether they may have messages.
  std::size_t gpu_peak_ = 0;                           ///< Bytes, when the program has ended.
  bool has_gone_back_ = false;                         ///< Backward has run.
  RunningCall call_;
};

}  // namespace spillway::split
