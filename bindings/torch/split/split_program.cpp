#include "spillway/split/split_program.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/ScopeExit.h>
#include <signal.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absent_bytes.h"
#include "absent_reads.h"
#include "action_lists.h"
#include "archive_exchange.h"
#include "archive_file.h"
#include "call_arguments.h"
#include "deferred_calls.h"
#include "executor.h"
#include "first_rank.h"
#include "gradient_watch.h"
#include "held_signals.h"
#include "list_calls.h"
#include "program_data.h"
#include "rank_figures.h"
#include "rank_log.h"
#include "rebalancing.h"
#include "record_memory.h"
#include "replicated_operators.h"
#include "shard_exchange.h"
#include "spillway/base/assert.h"
#include "spillway/base/log.h"
#include "spillway/phantoms/operator_names.h"
#include "spillway/phantoms/output_memo.h"
#include "spillway/phantoms/phantom_memory.h"
#include "spillway/phantoms/plain_tensor.h"
#include "spillway/recompute/generators.h"
#include "spillway/recompute/operator_rules.h"
#include "spillway/recompute/surroundings.h"
#include "spillway/runtime/endings.h"
#include "spillway/runtime/recording/op_uses.h"
#include "split_notices.h"
#include "staged_bytes.h"
#include "storage_table.h"
#include "trace_exchange.h"

namespace spillway::split {
namespace {

using phantoms::CallOutputs;
using phantoms::Making;
using phantoms::PhantomMemory;
using pipeline::Decision;
using pipeline::Move;
using pipeline::OperatorCall;
using pipeline::OperatorKind;
using pipeline::OperatorUse;
using pipeline::StorageOrdinal;

constexpr std::string_view kReadByOperators =
    "read it by item(), tolist(), numpy() or a pointer with a type (data_ptr<float>()), which "
    "LibTorch tells of; save it by torch.save or, with safetensors, which reads by addresses, as "
    "numpy() arrays (safetensors.numpy); or train without --split";

/// Nothing is there to be used by kernels: bytes are elsewhere, promised, or in a file.
bool is_phantom(const c10::StorageImpl& storage) {
  const c10::DeleterFnPtr deleter = storage.data_ptr().get_deleter();
  return deleter == PhantomMemory::deleter() || deleter == RecordMemory::deleter();
}

c10::StorageImpl& storage_of(const at::TensorBase& tensor) {
  return *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

/// Whose gradient backward adds to at the moment, or null.
const at::Tensor* variable_of_running_node() {
  const auto node = ::torch::autograd::get_current_node();
  const auto* const accumulates =
      node == nullptr ? nullptr : dynamic_cast<const torch::autograd::AccumulateGrad*>(&*node);
  return accumulates == nullptr ? nullptr : &accumulates->variable;
}

c10::DataPtr borrowed(const void* memory) {
  return {const_cast<void*>(memory), c10::Device(c10::DeviceType::CPU)};
}

/// Memory of the executor, which the program sees and which stays as long as it does.
c10::DataPtr lent(const c10::Storage& storage) {
  return {const_cast<void*>(storage.data()), new c10::Storage(storage), &StorageTable::return_lent,
          c10::Device(c10::DeviceType::CPU)};
}

/// The same for a second storage over it, `alias`, whose own memory ends with it.
c10::DataPtr shared(const c10::Storage& storage, c10::StorageImpl& alias) {
  using Both = std::pair<c10::Storage, c10::DataPtr>;
  auto* const both = new Both(storage, std::move(alias._mutable_data_ptr_no_checks()));
  return {const_cast<void*>(storage.data()), both,
          [](void* context) { delete static_cast<Both*>(context); },
          c10::Device(c10::DeviceType::CPU)};
}

pipeline::StageCuts cuts_of(const Layout& layout) {
  const std::uint32_t stages = layout.placement.stages();
  return layout.marks.empty() ? pipeline::StageCuts::by_bytes(stages)
                              : pipeline::StageCuts::by_begins(stages);
}

}  // namespace

class SplitProgram::Impl {
  static constexpr std::size_t kMostTasks = std::size_t{1} << 15;
  static constexpr std::uint64_t kTasksBetweenLooks = 256;
  /// At most; the hash keeps the calls of two such spans to look back at.
  static constexpr std::uint64_t kCallsBetweenComparisons = 8192;
  static constexpr std::size_t kFewUses = 16;
  static constexpr std::size_t kSmall = 4096;  ///< Bytes that each rank may have for itself.

 public:
  explicit Impl(SplitOptions options)
      : runtime_(options.runtime),
        transport_(options.transport),
        job_(options.job),
        compute_(options.compute),
        ownership_(options.layout.placement, cuts_of(options.layout)),
        marks_(options.layout.marks),
        plan_(std::move(options.plan)),
        min_storage_(options.min_storage),
        replicated_(options.replicate),
        memo_({.hidden_keys = options.hidden_keys}),
        storages_(options.deleter),
        log_(options.traces ? std::make_unique<RankLog>() : nullptr),
        shards_(options.exchange
                    ? std::make_unique<ShardExchange>(runtime_, std::move(*options.exchange))
                    : nullptr),
        gradients_(storages_, order_),
        executor_(runtime_, transport_, job_, compute_,
                  options.layout.windows[options.transport.rank().value()], shards_.get(),
                  log_.get()),
        lists_(options.layout, options.transport.rank(), executor_),
        deferred_(executor_, [this](PendingCall call, auto reads,
                                    auto writes) { submit(std::move(call), reads, writes); }),
        archives_(runtime_, transport_, job_),
        signals_(transport_, job_),
        notices_(transport_.rank()) {
    if (options.rebalances && ownership_.placement().stages() > 1)
      rebalancing_.emplace(transport_, job_, options.hosts, ownership_.placement(),
                           options.layout.in_flight(), runtime_);
  }

  bool is_on_this_thread() const noexcept { return std::this_thread::get_id() == thread_; }
  bool is_in_call() const noexcept { return is_in_call_ || phantoms::is_on_trial(); }

  bool is_in_parts(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
    const bool before = std::exchange(is_in_call_, true);  // A trial makes tensors of its own.
    const auto is_over = c10::make_scope_exit([this, before] { is_in_call_ = before; });
    outputs_ = &memo_.outputs_of(op, arguments);
    return outputs_->making == Making::kParts;
  }

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack,
           const runtime::OpTraits& traits) {
    const std::string_view name = kept_name_of(op);
    if (name == "aten::_lazy_clone") {
      clone(below, stack, traits);
      return;
    }
    leave_out_unused(name, stack);
    const c10::ArrayRef<c10::IValue> arguments =
        torch::jit::last(stack, op.schema().arguments().size());
    phase_ = traits.autograd.phase;
    if (shards_) exchange_before(op, arguments);
    if (traits.autograd.phase == OpPhase::kOther && is_by_element(op, arguments)) {
      const auto groups = by_place(op, arguments);
      if (groups.size() > 1) {
        run_in_groups(op, below, stack, traits, groups);
        return;
      }
    }
    const CallMark mark(*this);
    // Of these ranks may make others: a data loader does where its workers' tensors come in another
    // order. What they make is known when it is used.
    if (outputs_->making == Making::kNoBytes) {
      decision_ = nullptr;
      compute_now(op, below, stack, traits, name);
      return;
    }
    arguments_ = arguments;
    first_new_ = storages_.next();
    collect_uses(op, arguments);
    OperatorCall call;
    call.kind = kind_of_call();
    call.autograd = traits.autograd;
    if (phase_ == OpPhase::kForward) look_for_parameters();
    call.uses = uses_;
    if (ownership_.begins_step(call)) begin_step_before(op, arguments);
    call.uses = uses_;
    if (++calls_ % kCallsBetweenComparisons == 0) job_.compare();
    job_.control().begin_call(name);
    add_arguments(job_.control(), storages_, arguments);
    add_draws(op, arguments);
    if (call.autograd.phase == OpPhase::kBackward)
      call.accumulates_for = parameter_that_accumulates();
    if (!marks_.have_all_come()) look_for_stage(name, call.autograd.phase);
    if (!replicated_.are_none() && call.autograd.phase == OpPhase::kForward)
      call.replicates = replicated_.note(name, has_parameter());
    if (ownership_.units().count() == 0) notices_.called_before_training(name, phase_, uses_);
    decide(call);
    if (shards_ && phase_ == OpPhase::kOther) note_update(name);
    if (decision_->follows_other || !lists_.has_before(place_, decision_->follows_forward))
      lists_.give_up(message("{} of a micro-batch hangs on an earlier one of its step", name));
    if (decision_->follows_backward)
      lists_.give_up(message("{} of forward hangs on backward of its step", name));
    if (shards_ && phase_ == OpPhase::kForward) note_forward();
    const bool is_ours = decision_->owners.contains(transport_.rank());
    const bool is_deferred = may_defer(op, below, arguments, traits.autograd.phase);
    const bool runs_now = !is_deferred && is_ours &&
                          ((decision_->owners.is_all() && !decision_->updates_replicated) ||
                           !may_wait(op, below, arguments));
    if (!runs_now || are_results_larger()) add_data();
    if (is_deferred) {
      queue(op, below, stack, traits, /*is_deferred=*/true);
    } else if (runs_now) {
      compute_now(op, below, stack, traits, name);
    } else if (is_ours) {
      queue(op, below, stack, traits, /*is_deferred=*/false);
    } else {
      memo_.make(*outputs_, op, stack);
      name_results(op, stack);
    }
  }

  /// In training, backward of a batch norm uses the statistics of its own batch. It takes the
  /// running ones, too, and would have to come before the next micro-batch's forward, which changes
  /// them.
  static void leave_out_unused(std::string_view name, torch::jit::Stack& stack) {
    enum { kRunningMean = 3, kRunningVariance, kTrains = 7, kCount = 10 };
    if (name != "aten::native_batch_norm_backward") return;
    const auto first = stack.end() - kCount;
    if (!first[kTrains].toBool()) return;
    first[kRunningMean] = first[kRunningVariance] = c10::IValue();
  }

  void check_other_thread(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
    const auto& accesses = recompute::rules_of(op).uses;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t position) {
      fill_for_other_thread(storage_of(tensor));
      if (is_phantom(storage_of(tensor)))
        job_.abort(
            message("{} runs on a thread of its own, with a tensor of the part of the program "
                    "that is split: train on the program's first thread, or without --split",
                    kept_name_of(op)));
      if (accesses[position] == recompute::ArgumentUse::kRead) return;
      const auto ordinal = storages_.at(storage_of(tensor).data());
      if (ordinal && executor_.has(*ordinal) && !is_kept(*ordinal))
        job_.abort(
            message("{} runs on a thread of its own and writes a tensor, {} {}, that operators of "
                    "the program's first thread may not have read yet: let that thread make a "
                    "tensor of its own (clone()), or train without --split",
                    kept_name_of(op), tensor.scalar_type(), tensor.sizes()));
    });
  }

  void before_pointer(const at::TensorBase& tensor, bool writes, bool keeps) {
    if (!tensor.unsafeGetTensorImpl()->has_storage()) return;
    c10::StorageImpl& storage = storage_of(tensor);
    if (storage.data() == nullptr) return;
    if (!is_on_this_thread()) fill_for_other_thread(storage);
    if (!may_ask()) return;
    const auto ordinal = number_of(storage);
    if (!ordinal) return;
    exchange_of(*ordinal);
    const CallMark mark(*this);
    show(storage, {*ordinal, writes, tensor.requires_grad(), Bytes(storage.nbytes())});
    if (keeps) keep_everywhere(*ordinal);
  }

  void leaf_made(c10::TensorImpl& leaf) {
    if (shards_ && may_ask()) order_.leaf_made(leaf);
  }
  void parameter_registered(const at::Tensor& parameter) {
    if (may_ask()) order_.registered(parameter);
  }

  void record_read(const c10::DataPtr& memory, std::size_t size) {
    // Another thread comes by at a moment of its own on each rank, and is not split.
    const bool is_elsewhere = has_absent_archives_ && is_on_this_thread();
    if (has_absent_archives_ && !is_elsewhere && AbsentBytes::are_at(memory.get(), size))
      job_.abort(
          "a thread of its own reads an archive of this run, whose bytes are in the file of the "
          "first rank: load it on the program's first thread, or after the run");
    storages_.note_loaded(memory, is_elsewhere);
    RecordMemory* const record = RecordMemory::of(memory);
    if (record != nullptr && is_elsewhere) record->is_elsewhere = transport_.rank() != kFirst;
    if (is_elsewhere || !may_ask()) return;
    job_.control().begin_call("torch.load");
    job_.control().add_data(record != nullptr ? record->range().file->digest()
                                              : XXH3_64bits(memory.get(), size));
    job_.control().end_call();
  }

  void before_flag() {
    if (!may_ask()) return;
    job_.control().begin_call("a flag of LibTorch");
    job_.control().end_call();
    executor_.wait_until_left(0);
  }

  /// What was loaded and the split program has not used is another thread's as well.
  void fill_for_other_thread(c10::StorageImpl& storage) {
    const RecordMemory* const record = RecordMemory::of(storage);
    if (record == nullptr || record->is_numbered || record->is_elsewhere) return;
    try {
      c10::DataPtr filled = c10::GetCPUAllocator()->allocate(storage.nbytes());
      record->range().read_to(runtime_, filled.get());
      storage.set_data_ptr_noswap(std::move(filled));
    } catch (const IoError& error) {
      job_.abort(error.what());
    }
  }

  const AbsentBytes& absent() const { return absent_; }

  const void* archived_bytes(const void* memory, std::size_t size) {
    const auto ordinal = may_ask() ? storages_.at(memory) : std::nullopt;
    if (!ordinal) {
      check_record_at(memory);
      return memory;
    }
    return archived(*ordinal, memory, size);
  }

  const at::Tensor& archived_tensor(const at::Tensor& tensor) {
    if (!may_ask() || !tensor.unsafeGetTensorImpl()->has_storage()) return tensor;
    const c10::StorageImpl& storage = storage_of(tensor);
    const auto ordinal = storages_.at(storage.data());
    if (!ordinal) {
      check_record_at(storage.data());
      return tensor;
    }
    const void* const bytes = archived(*ordinal, storage.data(), storage.nbytes());
    if (bytes == storage.data()) return tensor;
    archived_tensor_ =
        phantoms::PlainTensor::of(*tensor.unsafeGetTensorImpl())
            .over(c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), borrowed(bytes)));
    return archived_tensor_;
  }

  /// The program is about to read the file itself. One that has changed ends the job.
  void check_record_at(const void* address) {
    const RecordMemory* const record = RecordMemory::around(address);
    const std::string changed = record == nullptr ? "" : record->range().file->change();
    if (!changed.empty()) job_.abort(changed);
  }

  /// In a signal handler, on the thread that has touched memory which is not there: it holds no
  /// lock of ours.
  void read_past_operators(const void* address) {
    check_record_at(address);
    const auto ordinal = storages_.around(address);
    std::string where;
    if (ordinal && is_on_this_thread()) {
      const pipeline::RankSet& holders = ownership_.directory().at(*ordinal).holders;
      where = message(", storage {} of rank {},", ordinal->value(), holders.first().value());
    }
    const auto latest = job_.control().latest(1);
    job_.abort(
        message("after {} the program reads or writes a tensor{} by a pointer that nobody has "
                "told of: {}",
                latest.empty() ? "its start" : latest.back().name, where, kReadByOperators));
  }

  /// The program has begun to update its parameters; or has replaced them, and goes on.
  void update() {
    lists_.end_step();
    job_.compare();
    if (steps_++ == 0 && transport_.rank() == kFirst)
      for (const std::string& text : replicated_.unmatched()) log_warning("{}", text);
    is_updating_ = true;
    runtime_.step_updated();
  }

  void begin_step() {
    if (!is_updating_) update();
    // Operators that all ranks compute add up in another order.
    job_.control().begin_call("the begin of a step");
    job_.control().add(static_cast<std::uint64_t>(at::get_num_threads()));
    job_.control().end_call();
    keep_watching_absent_reads();
    if (steps_ == 1) look_at_signal();
    const bool has_mean = std::exchange(means_, 0) > 0;
    is_updating_ = false;
    if (std::exchange(has_updated_, false) && shards_ && !has_mean)
      job_.abort(message("step {} has updated parameters without gradients that --shards has "
                         "averaged: it averages what backward() leaves in .grad of parameters",
                         steps_));
    const std::size_t units = ownership_.units().count();
    const bool rebalances = rebalancing_ && units > 0;
    // Before the executor measures: the first rank expects that from here on.
    if (rebalances) {
      try {
        if (const auto cuts = rebalancing_->begin_step(steps_, ownership_)) ownership_.recut(*cuts);
      } catch (const std::exception& error) {
        job_.abort(error.what());  // The programs of other ranks go on.
      }
    }
    executor_.add_barrier(steps_ + 1, [this, units, rebalances, step = steps_] {
      runtime_.step_boundary();
      if (rebalances) rebalancing_->measured(step, executor_.take_unit_seconds(units));
    });
    if (!shards_) handle_signals();  // Shards are at different steps.
  }

  void handle_signals() {
    try {
      signals_.begin_step(steps_);
    } catch (const std::exception& error) {
      job_.abort(error.what());
    }
  }

  /// By now the program has set up what it wants.
  void look_at_signal() const {
    if (transport_.rank() == kFirst && log_enabled(LogLevel::kWarning) &&
        !runtime::is_answered(SIGUSR2))
      log_line(LogLevel::kInfo,
               "the program takes SIGUSR2 for itself, which would else tell what each "
               "rank does: that is told only where a rank does not answer");
  }

  /// The child has copies of what this process has, and asks nobody: what the program has drawn
  /// or filled, as rows of data that processes of a data loader read, has to be there.
  void before_fork() noexcept {
    if (!may_ask()) return;
    try {
      deferred_.for_each_but_parameters([&](StorageOrdinal ordinal, c10::StorageImpl& storage) {
        if (RecordMemory::of(storage) != nullptr) return;  // The file is there for the child, too.
        if (!ownership_.directory().at(ordinal).holders.is_all()) return;
        deferred_.want(ordinal, false);
        show_held(storage, ordinal, false, "a new process");
      });
    } catch (const std::exception& error) {
      job_.abort(error.what());
    }
  }

  void begin_micro_batch() {
    if (!may_ask()) return;
    job_.control().begin_call("spillway::micro_batch()");
    job_.control().end_call();
    // Backward of the first waits for forward of the last, in the order of the program.
    lists_.give_up("the program marks its micro-batches itself");
    executor_.lift_window();
    if (is_updating_) begin_step();
    const std::uint64_t before = ownership_.micro_batch_of_run();
    ownership_.begin_micro_batch();
    look_at_micro_batch(before);
  }

  void program_ends() noexcept {
    if (!is_on_this_thread() || is_in_call_) return;
    try {
      drain();
    } catch (const std::exception& error) {
      log_error("{}", error.what());
    }
  }

  void drain() {
    if (shards_) shards_->tell_end(steps_);
    executor_.wait_until_left(0);
    archives_.wait_for_all();
    if (shards_) shards_->wait_for_ends();
  }

  std::vector<runtime::RanksReport::Row> gather(runtime::RankFigures mine) {
    mine.parameter_bytes = ownership_.most_parameters_of(transport_.rank()).count();
    mine.micro_batches = ownership_.micro_batch_of_run() + 1;
    mine.steps = steps_;
    executor_.write(mine);
    // A rank whose program has ended alone is found by this.
    job_.control().begin_call("the end of the program");
    job_.control().end_call();
    std::vector<runtime::RankFigures> all = gather_figures(transport_, job_, mine);
    if (shards_ && transport_.rank() == kFirst) all = shards_->gather(std::move(all));
    std::vector<runtime::RanksReport::Row> rows;
    for (const runtime::RankFigures& figures : all) {
      const Rank rank(static_cast<std::uint32_t>(rows.size() % transport_.ranks()));
      rows.push_back({{}, ownership_.placement().stages_of(rank), figures});
    }
    return rows;
  }

  runtime::RanksTrace trace(runtime::RecordedTrace mine, bool joins) {
    if (log_ != nullptr) log_->write(mine);
    const std::uint32_t shards = shards_ ? shards_->shards() : 1;
    const std::uint32_t first = shards_ ? shards_->shard().value() * transport_.ranks() : 0;
    mine.trace.process =
        profile::process_of_rank(first + transport_.rank().value(), mine.trace.source);
    if (!joins) {
      profile::keep_whole_arrows({&mine.trace, 1});
      return {{std::move(mine.trace)}, std::move(mine.summary)};
    }
    const auto name_of = [&](Rank rank) { return message("rank {}", first + rank.value()); };
    const SteadyClock clock;
    const std::string summary = mine.summary;
    const bool is_first_of_job = transport_.rank() == kFirst && first == 0;
    mine.has_whole_step |= is_first_of_job;  // It shows what there is.
    TracesOfRanks all = traces_of(std::move(mine), name_of(transport_.rank()));
    gather_traces(transport_, job_, all, name_of, clock);
    if (shards_ && transport_.rank() == kFirst) shards_->gather(all, clock);
    if (!is_first_of_job) return {};
    return joined(std::move(all), summary, shards * transport_.ranks());
  }

  bool has_given_up_lists() const { return lists_.are_given_up(); }

  runtime::LayerMoves layer_moves() const {
    return rebalancing_ ? rebalancing_->moves() : runtime::LayerMoves();
  }

  void finish() {
    job_.end();
    if (shards_) shards_->job().end();
    archives_.stop();
    executor_.stop();
  }

  void ended(const void* address) noexcept {
    if (archives_.owes_any())
      if (const auto ordinal = storages_.at(address)) keep_until_archived(*ordinal);
    storages_.ended(address);
  }

 private:
  void keep_until_archived(StorageOrdinal ordinal) noexcept {
    if (!is_on_this_thread()) return archives_.wait_for(ordinal);
    try {
      archives_.wait_for_all();
    } catch (const std::exception& error) {
      job_.abort(error.what());
    }
  }

  using Members = std::vector<std::size_t>;  ///< Numbers of tensors in a list.

  /// The tensors of lists by the rank that keeps them; none: all. Where the first list's is on all,
  /// as a loaded state is, the next one's tells. One of which nothing tells, and whose call may
  /// wait, waits alone. Parameters that all ranks update are with none of a rank's.
  std::vector<Members> by_place(const c10::OperatorHandle& op,
                                c10::ArrayRef<c10::IValue> arguments) {
    std::vector<Rank> ranks(arguments[0].toTensorList().size());
    for (const c10::IValue& argument : arguments) {
      if (!argument.isTensorList() || argument.toTensorList().size() != ranks.size()) continue;
      const c10::List<at::Tensor> list = argument.toTensorList();
      for (std::size_t i = 0; i < ranks.size(); ++i)
        if (!ranks[i].is_some()) ranks[i] = place_of(list.get(i));
    }
    std::map<std::pair<bool, Rank>, Members> placed;
    std::vector<Members> groups;
    const bool may_wait = DeferRule::of(op).may_wait;
    const c10::List<at::Tensor> first = arguments[0].toTensorList();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (may_wait && !ranks[i].is_some() && first.get(i).nbytes() >= kSmall) {
        groups.push_back({i});
      } else {
        placed[{is_replicated(first.get(i)), ranks[i]}].push_back(i);
      }
    }
    for (auto& [place, members] : placed) groups.push_back(std::move(members));
    return groups;
  }

  /// Of a tensor whose storage has a number; else null.
  const pipeline::StorageFacts* facts_of(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage() || storage_of(tensor).data() == nullptr)
      return nullptr;
    const auto ordinal = number_of(storage_of(tensor));
    return ordinal ? &ownership_.directory().at(*ordinal) : nullptr;
  }

  bool is_replicated(const at::Tensor& tensor) {
    const pipeline::StorageFacts* const facts = facts_of(tensor);
    return facts != nullptr && facts->is_replicated;
  }

  Rank place_of(const at::Tensor& tensor) {
    const pipeline::StorageFacts* const facts = facts_of(tensor);
    if (facts == nullptr) return {};
    return facts->home.is_some() ? facts->home : facts->computed_by;
  }

  /// A call for the tensors of each rank, in place of one that would bring all to the first's.
  void run_in_groups(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                     torch::jit::Stack& stack, const runtime::OpTraits& traits,
                     const std::vector<Members>& groups) {
    const std::size_t count = op.schema().arguments().size();
    const torch::jit::Stack whole(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
    torch::jit::drop(stack, count);
    const std::size_t size = whole[0].toListRef().size();
    std::vector<at::Tensor> results(size);
    const auto found = found_argument(op);
    std::vector<at::Tensor> founds;
    runtime::OpTraits beside = traits;  // Of operators before and behind the one that is called.
    beside.autograd = {.phase = OpPhase::kOther};
    for (std::size_t i = 1; found && i < groups.size(); ++i)
      founds.push_back(copy_of(whole[*found].toTensor(), below, beside));
    for (std::size_t group = 0; group < groups.size(); ++group) {
      const Members& members = groups[group];
      torch::jit::Stack part = arguments_for(whole, size, members);
      // One after the other writes its own: none waits for what another one has found.
      if (found && group > 0) part[*found] = founds[group - 1];
      is_in_parts(op, part);
      run(op, below, part, traits);
      if (part.empty()) continue;  // It writes in place.
      for (std::size_t i = 0; i < members.size(); ++i)
        results[members[i]] = part.back().toTensorList().get(i);
    }
    for (const at::Tensor& one : founds) raise(whole[*found].toTensor(), one, below, beside);
    if (!op.schema().returns().empty()) stack.emplace_back(std::move(results));
  }

  at::Tensor copy_of(const at::Tensor& tensor, c10::DispatchKeySet below,
                     const runtime::OpTraits& traits) {
    torch::jit::Stack stack{tensor};
    clone(below, stack, traits);
    return stack.back().toTensor();
  }

  /// To the other one, where that is larger.
  void raise(const at::Tensor& number, const at::Tensor& to, c10::DispatchKeySet below,
             const runtime::OpTraits& traits) {
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::clamp_min_", "Tensor");
    torch::jit::Stack stack{number, to};
    is_in_parts(op, stack);
    run(op, below, stack, traits);
  }

  /// In place of a copy at the first write, which bytes that move between ranks cannot have.
  void clone(c10::DispatchKeySet below, torch::jit::Stack& stack, const runtime::OpTraits& traits) {
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
    stack.emplace_back();  // The memory format stays.
    is_in_parts(op, torch::jit::last(stack, 2));
    run(op, below, stack, traits);
  }

  bool has_parameter() const {
    return std::any_of(uses_.begin(), uses_.end(), [&](const OperatorUse& use) {
      const pipeline::StorageFacts& facts = ownership_.directory().at(use.storage);
      return use.requires_gradient && (facts.is_parameter || !facts.unit);
    });
  }

  /// Stages of a plan begin with operators of the first forward.
  void look_for_stage(std::string_view name, OpPhase phase) {
    if (phase == OpPhase::kBackward && ownership_.units().count() > 0)
      job_.abort(message("{}: this plan is for another model or another size: {} (make the plan "
                         "again from a profile of this program)",
                         plan_, marks_.missing()));
    if (phase != OpPhase::kForward) return;
    const auto is_counted = [&](std::size_t bytes) { return bytes >= min_storage_.count(); };
    if (std::none_of(uses_.begin(), uses_.end(),
                     [&](const OperatorUse& use) { return is_counted(use.size.count()); }) &&
        std::none_of(outputs_->storages.begin(), outputs_->storages.end(), is_counted))
      return;
    if (!marks_.begins_stage(name)) return;
    for (const OperatorUse& use : uses_)
      if (ownership_.directory().at(use.storage).is_parameter && use.requires_gradient)
        job_.abort(message("{}: a stage of this plan begins with {}, whose parameter the program "
                           "has used before, in a forward of another size: let the first forward "
                           "be one of training, or train without --plan",
                           plan_, name));
    ownership_.begin_stage();
  }

  /// What the call draws: ranks whose seeds differ go apart without another call, and so do those
  /// of which one has a thread that draws beside.
  void add_draws(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
    if (recompute::rules_of(op).generator_argument >= 0 || draws())
      job_.control().add(recompute::next_draw_of(generator_of(op, arguments)));
  }

  static at::Generator generator_of(const c10::OperatorHandle& op,
                                    c10::ArrayRef<c10::IValue> arguments) {
    return recompute::generator_of(arguments, recompute::rules_of(op).generator_argument);
  }

  void begin_call() {
    is_in_call_ = true;
    data_.begin_call();
    read_bytes_.clear();
    fills_first_ = false;
  }

  /// Handlers of signals may compute, with all that is kept of the running call.
  void begin_step_before(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
    is_in_call_ = false;
    begin_step();
    phase_ = OpPhase::kForward;
    is_in_parts(op, arguments);
    begin_call();
    arguments_ = arguments;
    first_new_ = storages_.next();
    collect_uses(op, arguments);
    look_for_parameters();
  }

  /// Whether the program is in here, or in a kernel that it runs from here.
  class CallMark {
   public:
    explicit CallMark(Impl& program) : program_(program) { program_.begin_call(); }
    ~CallMark() { program_.is_in_call_ = false; }
    CallMark(const CallMark&) = delete;
    CallMark& operator=(const CallMark&) = delete;

   private:
    Impl& program_;
  };

  /// Whether the program itself runs on this thread, and neither an operator nor this class.
  bool may_ask() const { return is_on_this_thread() && !is_in_call_ && !phantoms::is_on_trial(); }

  /// Whether the program has had a pointer to it: operators that run later have copies. Any thread.
  bool is_kept(StorageOrdinal ordinal) {
    const std::lock_guard lock(kept_mutex_);
    return kept_.contains(ordinal);
  }

  void note_kept_ended(StorageOrdinal ordinal) {
    const std::lock_guard lock(kept_mutex_);
    kept_.erase(ordinal);
  }

  /// Brings the bytes of a storage to all ranks, for the program to look at.
  void show(c10::StorageImpl& storage, const OperatorUse& use) {
    constexpr std::string_view kName = "a pointer to a tensor";
    job_.control().begin_call(kName);
    job_.control().add(use.storage.value());
    uses_ = {use};
    first_uses_.clear();
    used_ = {&storage};
    OperatorCall call;
    call.kind = OperatorKind::kSteers;
    decide(call);
    show_uses(kName);
  }

  /// Where the bytes of a storage for an archive are to be read.
  const void* archived(StorageOrdinal ordinal, const void* memory, std::size_t size) {
    exchange_of(ordinal);
    const pipeline::RankSet& holders = ownership_.directory().at(ordinal).holders;
    const Rank here = transport_.rank();
    if (!holders.is_all()) has_absent_archives_ = true;
    const bool is_here = holders.contains(here);
    if (is_here) deferred_.want(ordinal, false);
    if (is_here && executor_.has(ordinal))
      memory = executor_.wait_for(ordinal, false, "an archive").data();
    if (is_here && holders.contains(kFirst)) return memory;
    if (here != kFirst) {
      if (is_here && holders.first() == here)
        archives_.owe(ordinal, device::host_span(static_cast<std::byte*>(const_cast<void*>(memory)),
                                                 Bytes(size)));
      return absent_.of(size);
    }
    archived_ = StagedBytes(Bytes(size));
    archives_.fetch(holders.first(), ordinal, archived_.span());
    return archived_.span().data;
  }

  void collect_uses(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
    uses_.clear();
    first_uses_.clear();
    used_.clear();
    writes_foreign_ = false;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
      storages_.ordinal_of(storage_of(tensor));  // By which new ones are told from others below.
    });
    data_.note_met(storages_.next());
    note_loaded();
    fills_first_ = fills_first(op, arguments);
    const auto& accesses = recompute::rules_of(op).uses;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t position) {
      const bool writes = accesses[position] != recompute::ArgumentUse::kRead;
      c10::StorageImpl& storage = storage_of(tensor);
      const auto ordinal = number_of(storage);
      if (!ordinal) {
        if (has_absent_archives_ && AbsentBytes::are_at(storage.data(), storage.nbytes()))
          job_.abort(message("{} reads an archive of this run, whose bytes are in the file of the "
                             "first rank: load it without mmap",
                             kept_name_of(op)));
        writes_foreign_ |= writes;
        if (const auto aliased = storages_.at(storage.data()))
          leave_to_program(*aliased, storage, op);
        notices_.foreign_read(kept_name_of(op), phase_, tensor);
        if (!writes || reads_what_it_writes(op)) read_bytes_.push_back({{}, &tensor});
        return;
      }
      // A second storage has been made over it.
      if (!kept_.empty() && is_phantom(storage) && is_kept(*ordinal))
        show_held(storage, *ordinal, true, kept_name_of(op));
      uses_.push_back({*ordinal, writes, tensor.requires_grad(), Bytes(storage.nbytes())});
      used_.push_back(&storage);
      const bool is_first = fills_first_ && position == 0;
      // A parameter's memory is its initialiser's.
      if (is_first && tensor.requires_grad() && ordinal->value() >= first_new_)
        data_.note_taken(*ordinal);
      if (!is_first) data_.add(*ordinal);
      if ((!writes || reads_what_it_writes(op)) && is_the_programs(ordinal) && !is_phantom(storage))
        read_bytes_.push_back({ordinal, &tensor});
    });
  }

  /// The number of a storage. Bytes of one that was loaded wait in their file.
  std::optional<StorageOrdinal> number_of(c10::StorageImpl& storage) {
    const auto ordinal = storages_.ordinal_of(storage);
    RecordMemory* const record = RecordMemory::of(storage);
    if (!ordinal || record == nullptr || record->is_numbered) return ordinal;
    if (record->is_elsewhere) {
      take_memory(storage);
      return ordinal;
    }
    record->is_numbered = true;
    deferred_.add(call_to_read(record->range()), {},
                  std::array{DeferredCalls::Written{*ordinal, &storage, false, true}});
    return ordinal;
  }

  static PendingCall call_to_read(const FileRange& bytes) {
    static const c10::OperatorHandle copy =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    PendingCall call{.op = copy};
    call.bytes = bytes;
    call.surroundings = recompute::Surroundings::of_this_thread();
    return call;
  }

  /// Whether a call fills the storage of its first argument, and reads nothing of it.
  bool fills_first(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) const {
    return DeferRule::of(op).overwrites && arguments[0].isTensor() &&
           arguments[0].toTensor().defined() && arguments[0].toTensor().has_storage() &&
           shows_all(arguments[0].toTensor()) &&
           storages_.at(storage_of(arguments[0].toTensor()).data());
  }

  /// What others write in part was perhaps never filled.
  static bool reads_what_it_writes(const c10::OperatorHandle& op) {
    return op.hasTag(at::Tag::pointwise) && !DeferRule::of(op).overwrites &&
           op.operator_name().name != "aten::masked_fill_";
  }

  /// What it reads that the program has made past the operators is equal on all ranks, if they ever
  /// compare what comes of it.
  void add_data() {
    for (const auto& [storage, tensor] : read_bytes_) data_.add_bytes(storage, *tensor);
    read_bytes_.clear();
  }

  /// Of a call that all ranks compute at once: whether looking at what it makes takes longer than
  /// at what it reads, or does not tell of all that it changes. A row of a large table is few
  /// bytes.
  bool are_results_larger() const {
    if (std::any_of(uses_.begin(), uses_.end(), [](const OperatorUse& use) { return use.writes; }))
      return true;
    if (outputs_->making != Making::kPhantoms) return false;
    std::size_t read = 0, made = 0;
    for (const auto& [storage, tensor] : read_bytes_) read += tensor->nbytes();
    for (const std::size_t bytes : outputs_->storages) made += bytes;
    return made >= read;
  }

  void note_loaded() {
    for (const StorageTable::Loaded& loaded : storages_.take_loaded()) {
      if (loaded.is_elsewhere) ownership_.found_on(kFirst, loaded.storage);
      data_.note_taken(loaded.storage);
    }
  }

  /// Memory that the program has made a second storage of, `alias`.
  void leave_to_program(StorageOrdinal ordinal, c10::StorageImpl& alias,
                        const c10::OperatorHandle& op) {
    const pipeline::StorageFacts& facts = ownership_.directory().at(ordinal);
    if (facts.is_everywhere) return;
    if (!facts.holders.is_all())
      job_.abort(
          message("{} uses a tensor that the program has made over the memory of another one "
                  "(from_blob), whose bytes are on other ranks: use that one, or train without "
                  "--split",
                  kept_name_of(op)));
    deferred_.want(ordinal, true);
    if (executor_.has(ordinal)) {
      const c10::Storage held = executor_.wait_for(ordinal, true, kept_name_of(op));
      if (held.data() != alias.data()) alias.set_data_ptr_noswap(shared(held, alias));
    }
    keep_everywhere(ordinal);
  }

  void keep_everywhere(StorageOrdinal ordinal) {
    ownership_.keep_everywhere(ordinal);
    const std::lock_guard lock(kept_mutex_);
    kept_.insert(ordinal);
  }

  /// What the program has made past LibTorch has no number, and is the same on all ranks.
  OperatorKind kind_of_call() const {
    return outputs_->making == Making::kPhantoms && !writes_foreign_ ? OperatorKind::kComputes
                                                                     : OperatorKind::kSteers;
  }

  StorageOrdinal parameter_that_accumulates() {
    const at::Tensor* const variable = variable_of_running_node();
    if (variable == nullptr || !variable->unsafeGetTensorImpl()->has_storage()) return {};
    return number_of(storage_of(*variable)).value_or(StorageOrdinal());
  }

  /// The rest of a call that has begun, up to its kernel.
  void decide(OperatorCall& call) {
    if (archives_.owes_any()) archives_.wait_for_all();
    for (const StorageOrdinal ordinal : storages_.take_ended()) {
      ownership_.ended(ordinal);
      deferred_.drop(ordinal);
      data_.note_ended(ordinal);
      note_kept_ended(ordinal);
      if (shards_) gradients_.ended(ordinal);
    }
    data_.note_met(storages_.next());
    note_loaded();
    call.uses = uses_;
    const std::uint64_t before = ownership_.micro_batch_of_run();
    decision_ = &ownership_.decide(call);
    if (ownership_.has_updated() && !is_updating_) update();
    look_at_micro_batch(before);
    // Sums of gradients and updates hold no activations.
    micro_batch_.reset();
    if (call.autograd.phase != OpPhase::kOther && !call.accumulates_for.is_some())
      micro_batch_ = turn();
    action_ = action_of(call);
    place_ = lists_.come_to(action_);
    job_.control().add(decision_->owners.is_all() ? transport_.ranks()
                                                  : decision_->owners.first().value());
    if (decision_->stage) compare_data();
    job_.control().end_call();
    for (const Decision::Dealt& dealt : decision_->dealt) {
      if (shards_) begin_equal(dealt);
      // Where another rank's bytes come to, none of its own may come after them.
      if (!dealt.holders.contains(transport_.rank())) let_go_of(number_of_use(dealt.parameter));
    }
    for (const Move& move : decision_->moves) add_move(move);
    free_stale();
  }

  /// An operator of the model: what it uses is the executor's to change from now on.
  void compare_data() {
    add_data();
    if (data_.number() != 0) job_.control().add_data(data_.number());
    for (const OperatorUse& use : uses_)
      if (use.writes) data_.note_taken(use.storage);
    for (const Decision::Dealt& dealt : decision_->dealt) data_.note_taken(dealt.parameter);
  }

  ForAction action_of(const OperatorCall& call) const {
    if (!micro_batch_ || !decision_->stage) return std::nullopt;
    return schedule::Action{.kind = call.autograd.phase == OpPhase::kForward
                                        ? schedule::ActionKind::kForward
                                        : schedule::ActionKind::kBackward,
                            .stage = *decision_->stage,
                            .micro_batch = static_cast<std::uint32_t>(
                                ownership_.micro_batch() / ownership_.placement().pipelines())};
  }

  using Storages = std::vector<std::pair<StorageOrdinal, c10::StorageImpl*>>;

  /// What the next operator reads of gradients that backward has changed is the mean of all shards.
  void exchange_before(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
    const bool is_backward = phase_ == OpPhase::kBackward;
    if (is_backward) step_ = steps_ + 1;
    std::vector<StorageOrdinal> read;
    try {
      read = is_backward ? gradients_.read_in_backward(op, arguments, variable_of_running_node())
                         : gradients_.read_by(op, arguments);
    } catch (const UnsupportedError& error) {
      job_.abort(error.what());
    }
    if (read.empty() || outputs_->making == Making::kNoBytes) return;
    Storages storages;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
      const auto ordinal = storages_.at(storage_of(tensor).data());
      const auto found = ordinal ? std::find(read.begin(), read.end(), *ordinal) : read.end();
      if (found == read.end()) return;
      storages.emplace_back(*ordinal, &storage_of(tensor));
      read.erase(found);
    });
    exchange(storages);
  }

  /// The program looks at a storage.
  void exchange_of(StorageOrdinal ordinal) {
    if (!shards_) return;
    try {
      if (!gradients_.is_changed(ordinal)) return;
    } catch (const UnsupportedError& error) {
      job_.abort(error.what());
    }
    exchange({{ordinal, gradients_.at(ordinal).front().storage}});
  }

  /// Small ones that are kept together go together.
  void exchange(const Storages& storages) {
    constexpr Bytes kAlone = 256_KiB;
    using Place = std::tuple<bool, Rank, allreduce::Element>;
    std::map<Place, Storages> small;
    for (const auto& [ordinal, storage] : storages) {
      const auto& gradients = gradients_.at(ordinal);
      const pipeline::StorageFacts& facts = ownership_.directory().at(ordinal);
      const Place place{facts.is_everywhere || !facts.unit,
                        facts.home.is_some() ? facts.home : facts.computed_by,
                        gradients.front().element};
      if (Bytes(storage->nbytes()) >= kAlone || gradients.size() > 1) {
        exchange_together({{ordinal, storage}});
        continue;
      }
      Storages& others = small[place];
      others.emplace_back(ordinal, storage);
      if (others.size() < ShardExchange::kMostParameters) continue;
      exchange_together(others);
      others.clear();
    }
    for (const auto& [place, together] : small)
      if (!together.empty()) exchange_together(together);
  }

  /// As an operator that writes them.
  void exchange_together(const Storages& storages) {
    constexpr std::string_view kName = "the mean over the shards";
    const CallMark mark(*this);
    job_.control().begin_call(kName);
    std::vector<ExchangedParameter> parameters;
    std::vector<StorageRange> ranges;
    std::vector<StorageOrdinal> ordinals;
    allreduce::Element element{};
    uses_.clear();
    used_.clear();
    for (const auto& [ordinal, storage] : storages) {
      job_.control().add(ordinal.value());
      data_.note_taken(ordinal);
      for (const GradientWatch::Gradient& gradient : gradients_.take(ordinal)) {
        parameters.push_back(gradient.parameter);
        ranges.push_back({ordinals.size(), gradient.begin, gradient.size});
        element = gradient.element;
      }
      ordinals.push_back(ordinal);
      uses_.push_back({ordinal, true, false, Bytes(storage->nbytes())});
      used_.push_back(storage);
    }
    ++means_;
    OperatorCall call;
    call.autograd.phase = OpPhase::kOther;
    decide(call);
    const bool is_here = decision_->owners.contains(transport_.rank());
    for (std::size_t i = 0; is_here && i < uses_.size(); ++i) {
      deferred_.want(uses_[i].storage, true);
      share(i);
    }
    // One storage may have the gradients of a whole model.
    constexpr auto kMost = static_cast<std::ptrdiff_t>(ShardExchange::kMostParameters);
    while (!parameters.empty()) {
      const auto count = std::min(kMost, std::ssize(parameters));
      auto mean = shards_->mean_of(step_, {parameters.begin(), parameters.begin() + count}, element,
                                   {ranges.begin(), ranges.begin() + count},
                                   decision_->owners.first(), is_here);
      if (is_here) executor_.add_effort(std::move(mean), ordinals, /*writes=*/true);
      parameters.erase(parameters.begin(), parameters.begin() + count);
      ranges.erase(ranges.begin(), ranges.begin() + count);
    }
    if (decision_->owners.is_all()) show_uses(kName);
  }

  /// Among leaves that forward has not used, or only as data.
  void look_for_parameters() {
    for (std::size_t i = 0; i < uses_.size(); ++i) {
      const pipeline::StorageFacts& facts = ownership_.directory().at(uses_[i].storage);
      if (uses_[i].requires_gradient && !facts.unit && !facts.is_of_forward)
        uses_[i].is_declared = order_.is_parameter(leaf_in(*used_[i]));
    }
  }

  /// The leaf that an argument of the call with that storage is, or is a view of.
  at::Tensor leaf_in(const c10::StorageImpl& storage) const {
    at::Tensor leaf;
    for_each_tensor(arguments_, [&](const at::Tensor& tensor, std::size_t) {
      if (leaf.defined() || &storage_of(tensor) != &storage) return;
      leaf = leaf_of(tensor);
      if (!leaf.defined()) leaf = tensor;
    });
    return leaf;
  }

  /// A parameter begins with the bytes that it has in the first shard. Data stay as they are.
  void begin_equal(const Decision::Dealt& dealt) {
    const std::size_t number = number_of_use(dealt.parameter);
    const at::Tensor leaf = leaf_in(*used_[number]);
    if (!order_.is_parameter(leaf)) {
      gradients_.add_data(dealt.parameter);
      return;
    }
    const std::string what = message("{} {}", leaf.scalar_type(), leaf.sizes());
    const auto place = order_.place_of(leaf);
    if (!place)
      job_.abort(
          message("a parameter ({}) has come to require a gradient unseen, so --shards cannot "
                  "tell which one of other shards it is: make it by torch.nn.Parameter or "
                  "register_parameter",
                  what));
    const ExchangedParameter parameter{place->name, what, place->forward};
    gradients_.add_parameter(dealt.parameter, parameter);
    const bool is_here = dealt.holders.contains(transport_.rank());
    auto copy = shards_->copy_of_first(steps_ + 1, parameter, uses_[number].size,
                                       dealt.holders.first(), is_here);
    if (!is_here) return;
    const bool takes = shards_->shard() != kFirst;
    deferred_.want(dealt.parameter, takes);
    share(number);
    executor_.add_effort(std::move(copy), {&dealt.parameter, 1}, takes);
    if (dealt.holders.is_all()) executor_.wait_for(dealt.parameter, takes, "a first parameter");
  }

  void note_forward() {
    try {
      gradients_.note_forward(arguments_);
    } catch (const UnsupportedError& error) {
      job_.abort(error.what());
    }
  }

  /// Of a call outside of backward.
  void note_update(std::string_view name) {
    try {
      has_updated_ |= gradients_.updates(uses_, overwrites_first(name)) && is_updating_;
    } catch (const UnsupportedError& error) {
      job_.abort(error.what());
    }
  }

  /// Micro-batches of each pipeline so far: windows count those.
  std::uint64_t turn() const {
    return ownership_.micro_batch_of_run() / ownership_.placement().pipelines();
  }

  /// Whether another one has begun, and with it a step.
  void look_at_micro_batch(std::uint64_t before) {
    const std::uint64_t now = ownership_.micro_batch_of_run();
    if (now == before) return;
    most_queued_in_turn_ = std::max(most_queued_in_turn_, std::exchange(queued_in_turn_, 0));
    if (ownership_.micro_batch() == 0)
      lists_.begin_step(now - std::exchange(first_micro_batch_, now));
    limit_lead();
  }

  /// The program does not run ahead for ever: its batches take memory.
  void limit_lead() {
    if (turn() > most_lead()) executor_.wait_until_begun(turn() - most_lead());
  }

  std::uint64_t most_lead() const {
    return std::max(2 * std::uint64_t{ownership_.placement().stages()}, lists_.lead());
  }

  void add_move(const Move& move) {
    if (move.from != transport_.rank() && move.to != transport_.rank()) return;
    const std::size_t number = number_of_use(move.storage);
    const bool sends = move.from == transport_.rank();
    if (sends) {
      deferred_.want(move.storage, false);
      share(number);
    }
    // Copies of parameters leave and arrive ahead of their micro-batch.
    const bool is_copy = ownership_.directory().at(move.storage).home.is_some();
    executor_.add_move(move, uses_[number].size,
                       sends || is_copy ? Executor::MicroBatch() : micro_batch_, action_,
                       lists_.place_of_move(action_, place_));
  }

  /// Of the first use of a storage.
  std::size_t number_of_use(StorageOrdinal ordinal) {
    if (uses_.size() <= kFewUses) {
      const auto found = std::find_if(uses_.begin(), uses_.end(), [&](const OperatorUse& use) {
        return use.storage == ordinal;
      });
      SPILLWAY_ASSERT(found != uses_.end());
      return static_cast<std::size_t>(found - uses_.begin());
    }
    number_uses();
    return first_uses_.at(ordinal).number;
  }

  /// A list operator has thousands.
  void number_uses() {
    if (!first_uses_.empty()) return;
    for (std::size_t i = 0; i < uses_.size(); ++i)
      first_uses_.try_emplace(uses_[i].storage, FirstUse{i, false}).first->second.is_written |=
          uses_[i].writes;
  }

  /// Bytes that the program has made itself are the executor's, too, from now on.
  void share(std::size_t number) {
    c10::StorageImpl& storage = *used_[number];
    if (is_phantom(storage) || executor_.has(uses_[number].storage)) return;
    c10::DataPtr memory = storage.set_data_ptr(borrowed(storage.data()));
    c10::Storage held(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(memory),
        storage.allocator(), /*resizable=*/false));
    storage.set_data_ptr_noswap(lent(held));
    executor_.hold(uses_[number].storage, std::move(held));
  }

  /// The program sees what this rank holds of what the call uses.
  void show_uses(std::string_view who) {
    for (std::size_t i = 0; i < uses_.size(); ++i) {
      deferred_.want(uses_[i].storage, uses_[i].writes);
      show_held(*used_[i], uses_[i].storage, uses_[i].writes, who);
    }
  }

  /// The program sees the executor's bytes of a storage, if that has any.
  void show_held(c10::StorageImpl& storage, StorageOrdinal ordinal, bool writes,
                 std::string_view who) {
    if (!executor_.has(ordinal)) return;
    const c10::Storage held = executor_.wait_for(ordinal, writes, who);
    SPILLWAY_ASSERT(held.unsafeGetStorageImpl() != nullptr);
    if (storage.data() != held.data()) exchange_memory(storage, lent(held));
  }

  /// What this rank no longer holds of what the call uses.
  void free_stale() {
    for (std::size_t i = 0; i < uses_.size(); ++i)
      if (!ownership_.directory().at(uses_[i].storage).holders.contains(transport_.rank()))
        let_go_of(i);
  }

  void let_go_of(std::size_t number) {
    leave(*used_[number]);
    deferred_.drop(uses_[number].storage);
  }

  /// What is at its address counts no more.
  void leave(c10::StorageImpl& storage) {
    if (storage.data_ptr().get_deleter() != PhantomMemory::deleter()) take_memory(storage);
  }

  void exchange_memory(c10::StorageImpl& storage, c10::DataPtr memory) {
    storages_.move(storage.data(), memory.get());
    storage.set_data_ptr_noswap(std::move(memory));
  }

  /// Whether a call that this rank computes alone may run later.
  bool may_wait(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                c10::ArrayRef<c10::IValue> arguments) const {
    if (below.has(c10::DispatchKey::Python)) return false;  // The program's own code sees it.
    if (!may_copy(arguments)) return false;
    if (!draws()) return true;
    return (recompute::rules_of(op).generator_argument >= 0 || DeferRule::of(op).with_generator) &&
           recompute::can_restore(generator_of(op, arguments));
  }

  /// Whether all ranks could compute a call that makes or fills something large, and nothing of it
  /// is to be seen before a rank needs that. All ranks compute it at once else.
  bool may_defer(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                 c10::ArrayRef<c10::IValue> arguments, OpPhase phase) {
    if (!decision_->owners.is_all() || decision_->stage || !decision_->moves.empty() ||
        phase == OpPhase::kBackward || kind_of_call() != OperatorKind::kComputes)
      return false;
    const DeferRule& rule = DeferRule::of(op);
    if (!rule.may_wait) return false;
    begins_anew_ = rule.overwrites && begins_anew(arguments);
    const auto is_large = [](std::size_t size) { return size >= kSmall; };
    bool makes_large = std::any_of(outputs_->storages.begin(), outputs_->storages.end(), is_large);
    for (std::size_t i = 0; i < uses_.size(); ++i) {
      makes_large |= uses_[i].writes && is_large(uses_[i].size.count());
      if (!(i == 0 && begins_anew_) && !may_use_later(i)) return false;
    }
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
      makes_large &=
          storages_.at(storage_of(tensor).data()) || storage_of(tensor).nbytes() <= kSmall;
    });
    return makes_large && (rule.of_any_type || makes_no_integers(arguments)) &&
           may_wait(op, below, arguments) && deferred_.has_room(used_ordinals());
  }

  /// Whether the first argument's storage is written as a whole, and used by nothing else: by no
  /// other argument, and by nobody before who may have its address.
  bool begins_anew(c10::ArrayRef<c10::IValue> arguments) const {
    if (uses_.empty() || used_.front() != &storage_of(arguments[0].toTensor())) return false;
    const StorageOrdinal first = uses_.front().storage;
    const bool is_new = first.value() >= first_new_;
    if (!is_new && !is_phantom(*used_.front())) return false;
    return shows_all(arguments[0].toTensor()) && !is_the_programs(first) &&
           std::none_of(uses_.begin() + 1, uses_.end(),
                        [&](const OperatorUse& use) { return use.storage == first; });
  }

  /// Whether the bytes of a use will be there when a rank needs what comes of them: they come then,
  /// too, or are the executor's, or few.
  bool may_use_later(std::size_t number) const {
    const OperatorUse& use = uses_[number];
    if (!is_the_programs(use.storage) &&
        (deferred_.are_here(use.storage) || executor_.has(use.storage)))
      return true;
    return !use.writes && use.size <= Bytes(kSmall);
  }

  /// Integers divided by zero, or raised to negative powers, throw. Real results of them do not.
  bool makes_no_integers(c10::ArrayRef<c10::IValue> arguments) {
    const auto is_integer = [](c10::ScalarType type) {
      return c10::isIntegralType(type, /*includeBool=*/false);
    };
    bool are_none =
        std::none_of(outputs_->tensors.begin(), outputs_->tensors.end(),
                     [&](const phantoms::TensorMade& made) { return is_integer(made.dtype); });
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
      const auto ordinal = storages_.at(storage_of(tensor).data());
      if (is_integer(tensor.scalar_type()) && ordinal && is_written(*ordinal)) are_none = false;
    });
    return are_none;
  }

  std::vector<StorageOrdinal> used_ordinals() const {
    std::vector<StorageOrdinal> used;
    for (const OperatorUse& use : uses_) used.push_back(use.storage);
    return used;
  }

  bool draws() const { return outputs_->draws > 0 || outputs_->draws_by_state; }

  /// Whether what the program may change past the operators is small.
  bool may_copy(c10::ArrayRef<c10::IValue> arguments) const {
    constexpr std::size_t kMost = std::size_t{256} << 20;
    bool may = true;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
      const c10::StorageImpl& storage = storage_of(tensor);
      may &= storage.nbytes() <= kMost || !is_the_programs(storages_.at(storage.data()));
    });
    return may;
  }

  bool is_the_programs(std::optional<StorageOrdinal> ordinal) const {
    return !ordinal || ownership_.directory().at(*ordinal).is_everywhere ||
           data_.is_by_hand(*ordinal);
  }

  void compute_now(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                   torch::jit::Stack& stack, const runtime::OpTraits& traits,
                   std::string_view name) {
    if (decision_ != nullptr) show_uses(name);
    try {
      compute_(op, below, stack, traits);
    } catch (const c10::OutOfMemoryError& error) {
      end_alone(name, error);
    } catch (const std::bad_alloc& error) {
      end_alone(name, error);
    } catch (const std::exception& error) {
      if (decision_ == nullptr || decision_->owners.is_all()) throw;  // As on all ranks.
      end_alone(name, error);
    }
    if (decision_ != nullptr) name_results(op, stack);
  }

  /// Other ranks go on.
  [[noreturn]] void end_alone(std::string_view name, const std::exception& error) {
    job_.abort(message("{} has failed on one rank{} in step {}, and the others went on: {}", name,
                       decision_ == nullptr ? std::string() : purpose_of(action_), steps_ + 1,
                       failure_text(error)));
    std::terminate();  // Unreached.
  }

  /// Flags of the process, as the default type, hold for what is queued until all of it is done.
  void watch_flags(const recompute::Surroundings& now) {
    if (flags_ && *flags_ == now.flags) return;
    if (flags_) executor_.wait_until_left(0);
    flags_ = now.flags;
  }

  void queue(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack,
             const runtime::OpTraits& traits, bool is_deferred) {
    const std::size_t count = op.schema().arguments().size();
    const c10::ArrayRef<c10::IValue> arguments = torch::jit::last(stack, count);
    PendingCall call{.op = op, .below = below, .traits = traits};
    call.unit = decision_->unit;
    call.action = action_;
    call.surroundings = recompute::Surroundings::of_this_thread();
    if (is_deferred) {
      if (begins_anew_) leave(*used_.front());
    } else {
      for (const OperatorUse& use : uses_) deferred_.want(use.storage, use.writes);
      watch_flags(*call.surroundings);
      look_at_queue();
    }
    for (std::size_t i = 0; i < uses_.size(); ++i)
      if (uses_[i].writes && RecordMemory::of(*used_[i]) != nullptr) take_memory(*used_[i]);
    reads_.clear();
    writes_.clear();
    record_arguments(op, arguments, call);
    if (is_deferred) call.bytes = bytes_that_are_copied(op, arguments);
    if (draws()) draw_from(recompute::copy_of(generator_of(op, arguments)), call);
    memo_.make(*outputs_, op, stack);
    name_results(op, stack);
    (call.bytes.file == nullptr ? call.results : call.blanks) = made_numbers_;
    if (is_deferred) {
      defer(std::move(call), op, stack);
      return;
    }
    for (const pipeline::MadeStorage& made : made_) writes_.push_back(made.storage);
    executor_.add_call(std::move(call), reads_, writes_, micro_batch_,
                       segment(traits.autograd.phase), place_);
  }

  /// Nor where it does not go back, as in an evaluation: as many calls wait as in its micro-batches
  /// that do.
  void look_at_queue() {
    if (lists_.are_followed()) return;  // They need what they have next.
    constexpr std::uint64_t kAtFirst = 1024;
    if (micro_batch_) ++queued_in_turn_;
    if (++queued_ % kTasksBetweenLooks != 0) return;
    const std::uint64_t most = most_queued_in_turn_ * (most_lead() + 1);
    executor_.wait_until_left(std::clamp<std::uint64_t>(most, kAtFirst, kMostTasks));
  }

  void defer(PendingCall call, const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    std::vector<DeferredCalls::Written> written;
    for (std::size_t i = 0; i < uses_.size(); ++i)
      if (uses_[i].writes)
        written.push_back(
            {uses_[i].storage, used_[i], uses_[i].requires_gradient, i == 0 && begins_anew_});
    for_each_tensor(torch::jit::last(stack, op.schema().returns().size()),
                    [&](const at::Tensor& tensor, std::size_t) {
                      const auto ordinal = storages_.at(storage_of(tensor).data());
                      if (ordinal && std::any_of(made_.begin(), made_.end(), [&](const auto& made) {
                            return made.storage == *ordinal;
                          }))
                        written.push_back({*ordinal, &storage_of(tensor), false, false});
                    });
    if (call.bytes.file != nullptr) {
      reads_.clear();
      call.tensors.clear();
    }
    deferred_.add(std::move(call), reads_, written);
  }

  /// Where a call gives a storage the very bytes of a record: it needs the file alone.
  FileRange bytes_that_are_copied(const c10::OperatorHandle& op,
                                  c10::ArrayRef<c10::IValue> arguments) const {
    const std::string& name = op.operator_name().name;
    const bool fills = name == "aten::copy_" && begins_anew_;
    if (!fills && name != "aten::clone" && name != "aten::_to_copy") return {};
    const at::Tensor& source = arguments[fills ? 1 : 0].toTensor();
    const RecordMemory* const record =
        source.has_storage() ? RecordMemory::of(storage_of(source)) : nullptr;
    if (record == nullptr || !source.is_non_overlapping_and_dense() || source.is_conj() ||
        source.is_neg())
      return {};
    const auto is_same = [&](c10::ScalarType dtype, c10::IntArrayRef sizes,
                             c10::IntArrayRef strides) {
      return dtype == source.scalar_type() && sizes == source.sizes() &&
             strides == source.strides();
    };
    if (fills) {
      const at::Tensor& filled = arguments[0].toTensor();
      if (!is_same(filled.scalar_type(), filled.sizes(), filled.strides()) || filled.is_conj() ||
          filled.is_neg())
        return {};
    } else {
      const phantoms::TensorMade& made = outputs_->tensors.front();
      if (outputs_->tensors.size() != 1 || !is_same(made.dtype, made.sizes, made.strides) ||
          outputs_->storages.size() != 1 || outputs_->storages.front() != source.nbytes())
        return {};
    }
    FileRange bytes = record->range();
    bytes.from += static_cast<std::uint64_t>(source.storage_offset()) * source.element_size();
    bytes.size = source.nbytes();
    return bytes;
  }

  /// A call that has waited runs under the flags of the process that held for it.
  void submit(PendingCall call, std::span<const StorageOrdinal> reads,
              std::span<const StorageOrdinal> writes) {
    if (!flags_) flags_ = recompute::Surroundings::of_this_thread()->flags;
    const bool differs = *flags_ != call.surroundings->flags;
    if (differs) executor_.wait_until_left(0);
    look_at_queue();
    executor_.add_call(std::move(call), reads, writes, std::nullopt, std::nullopt, {});
    if (differs) executor_.wait_until_left(0);
  }

  /// From a storage that nobody has filled.
  void take_memory(c10::StorageImpl& storage) {
    exchange_memory(storage, PhantomMemory::instance().allocate(storage.nbytes()));
  }

  std::optional<std::uint64_t> segment(OpPhase phase) const {
    if (!micro_batch_ || !decision_->stage) return std::nullopt;
    return 2 * (*micro_batch_ * ownership_.placement().stages() + *decision_->stage) +
           (phase == OpPhase::kBackward ? 1 : 0);
  }

  void record_arguments(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                        PendingCall& call) {
    const auto one = [&](const at::Tensor& tensor, std::size_t argument, std::int32_t element) {
      if (!tensor.defined()) return;
      ArgumentTensor noted;
      noted.argument = static_cast<std::uint32_t>(argument);
      noted.element = element;
      noted.tensor = phantoms::PlainTensor::of(*tensor.unsafeGetTensorImpl());
      record_storage(op, storage_of(tensor), noted);
      call.tensors.push_back(std::move(noted));
    };
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const c10::IValue& value = arguments[i];
      if (value.isTensor()) {
        one(value.toTensor(), i, -1);
        call.arguments.emplace_back(at::Tensor());
      } else if (value.isList() && !value.isIntList() && !value.isDoubleList()) {
        c10::List<c10::IValue> list = value.toList().copy();
        for (std::size_t k = 0; k < list.size(); ++k) {
          const c10::IValue element = list.get(k);
          if (!element.isTensor()) continue;
          one(element.toTensor(), i, static_cast<std::int32_t>(k));
          list.set(k, at::Tensor());
        }
        call.arguments.emplace_back(std::move(list));
      } else {
        call.arguments.push_back(value);
      }
    }
  }

  void record_storage(const c10::OperatorHandle& op, c10::StorageImpl& storage,
                      ArgumentTensor& noted) {
    const auto ordinal = storage.data() == nullptr ? std::nullopt : number_of(storage);
    if (is_the_programs(ordinal)) {
      noted.copy = copy_for(op, ordinal, storage, noted.tensor);
      return;
    }
    const std::size_t number = number_of_use(*ordinal);
    const bool writes = uses_[number].writes;
    // As for a number among tensors: nobody else needs it.
    if (!writes && !deferred_.are_here(*ordinal) && storage.nbytes() <= kSmall &&
        !is_phantom(storage) && !executor_.has(*ordinal)) {
      noted.copy = copy_for(op, ordinal, storage, noted.tensor);
      return;
    }
    share(number);
    noted.storage = *ordinal;
    reads_.push_back(*ordinal);
    if (is_written(*ordinal)) writes_.push_back(*ordinal);
  }

  bool is_written(StorageOrdinal ordinal) {
    if (uses_.size() <= kFewUses)
      return std::any_of(uses_.begin(), uses_.end(), [&](const OperatorUse& use) {
        return use.storage == ordinal && use.writes;
      });
    number_uses();
    return first_uses_.at(ordinal).is_written;
  }

  /// What the program shows now, for an operator that runs later.
  c10::Storage copy_for(const c10::OperatorHandle& op, std::optional<StorageOrdinal> ordinal,
                        const c10::StorageImpl& storage, phantoms::PlainTensor& tensor) {
    if (phantoms::sees_offsets(op.operator_name().name)) return copy_of_storage(storage);
    return ordinal && data_.is_by_hand(*ordinal) ? data_.copy_of_shown(*ordinal, storage, tensor)
                                                 : copy_of_bytes(storage, tensor);
  }

  /// Numbers the storages that a call has made, or will make.
  void name_results(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    made_.clear();
    made_numbers_.clear();
    data_.note_met(storages_.next());
    std::size_t number = 0;
    for_each_tensor(torch::jit::last(stack, op.schema().returns().size()),
                    [&](const at::Tensor& tensor, std::size_t) {
                      const std::size_t here = number++;
                      const c10::StorageImpl& storage = storage_of(tensor);
                      // In place of what it has read.
                      if (!read_bytes_.empty()) data_.add_bytes({}, tensor);
                      if (storages_.knows(storage)) return;
                      const auto ordinal = storages_.ordinal_of(storage);
                      if (!ordinal) return;
                      made_.push_back({*ordinal, Bytes(storage.nbytes())});
                      made_numbers_.push_back({here, *ordinal, Bytes(storage.nbytes())});
                    });
    ownership_.made(made_);
    data_.note_made(storages_.next());
    data_.end_call(uses_, made_, decision_->stage.has_value(), fills_first_);
  }

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
  ParameterOrder order_;
  StorageTable storages_;
  ProgramData data_;
  std::mutex kept_mutex_;
  std::unordered_set<StorageOrdinal> kept_;      ///< To which the program has had pointers.
  const std::unique_ptr<RankLog> log_;           ///< Null: no trace is wanted.
  const std::unique_ptr<ShardExchange> shards_;  ///< Null: there is one.
  GradientWatch gradients_;                      ///< With several shards.
  Executor executor_;
  ActionLists lists_;
  std::uint64_t first_micro_batch_ = 0;  ///< Of this step, counted through the run.
  DeferredCalls deferred_;
  ArchiveExchange archives_;
  AbsentBytes absent_;
  StagedBytes archived_;        ///< On the first rank: of the latest tensor.
  at::Tensor archived_tensor_;  ///< The latest.
  HeldSignals signals_;
  SplitNotices notices_;
  std::optional<Rebalancing> rebalancing_;
  std::uint64_t steps_ = 0;
  std::uint64_t step_ = 1;                        ///< Of the latest backward.
  std::uint64_t means_ = 0;                       ///< That this step has asked for.
  bool is_updating_ = false;                      ///< The optimizer has begun to write.
  bool has_updated_ = false;                      ///< It has written a parameter.
  std::atomic<bool> has_absent_archives_{false};  ///< Written by the program's thread.

  std::optional<recompute::Surroundings::Flags> flags_;  ///< Of the latest call in the queue.
  std::uint64_t queued_ = 0;                             ///< Calls.
  /// Those of forward and backward for the present micro-batch, and the most for one before.
  std::uint64_t queued_in_turn_ = 0, most_queued_in_turn_ = 0;
  std::uint64_t calls_ = 0;  ///< Of operators, as on all ranks.

  // Of the running call.
  bool is_in_call_ = false;
  OpPhase phase_{};
  const CallOutputs* outputs_ = nullptr;
  const Decision* decision_ = nullptr;  ///< Null: it has no use for bytes.
  Executor::MicroBatch micro_batch_;
  ForAction action_;
  Executor::Place place_;
  bool writes_foreign_ = false;
  bool begins_anew_ = false;     ///< What its first argument shows, which waits.
  bool fills_first_ = false;     ///< All of its first argument's storage.
  std::uint64_t first_new_ = 0;  ///< Number of the first storage that is new with it.
  c10::ArrayRef<c10::IValue> arguments_;
  std::vector<OperatorUse> uses_;
  std::vector<c10::StorageImpl*> used_;  ///< Their storages.
  struct ReadBytes {
    std::optional<StorageOrdinal> storage;
    const at::Tensor* tensor = nullptr;  ///< Among the arguments.
  };
  std::vector<ReadBytes> read_bytes_;  ///< That the program has made, and nobody has looked at.
  struct FirstUse {
    std::size_t number = 0;
    bool is_written = false;  ///< By any use of its storage.
  };
  std::unordered_map<StorageOrdinal, FirstUse> first_uses_;  ///< Where there are many.
  std::vector<pipeline::MadeStorage> made_;
  std::vector<PendingResult> made_numbers_;
  std::vector<StorageOrdinal> reads_, writes_;
};

SplitProgram::SplitProgram(SplitOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {
  running_.store(this);
  watch_absent_reads(&SplitProgram::read_past_operators);
  PhantomMemory::observe_ends(&SplitProgram::ended);
  RecordMemory::observe_ends(&SplitProgram::ended);
}

SplitProgram::~SplitProgram() { running_.store(nullptr); }

bool SplitProgram::is_on_this_thread() const noexcept { return impl_->is_on_this_thread(); }

bool SplitProgram::is_in_call() const noexcept { return impl_->is_in_call(); }

bool SplitProgram::is_in_parts(const c10::OperatorHandle& op,
                               c10::ArrayRef<c10::IValue> arguments) {
  return impl_->is_in_parts(op, arguments);
}

void SplitProgram::run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                       torch::jit::Stack& stack, const runtime::OpTraits& traits) {
  impl_->run(op, below, stack, traits);
}

void SplitProgram::check_other_thread(const c10::OperatorHandle& op,
                                      c10::ArrayRef<c10::IValue> arguments) {
  impl_->check_other_thread(op, arguments);
}

int SplitProgram::hold_signal(int signal) noexcept { return HeldSignals::hold(signal) ? 1 : 0; }

void SplitProgram::before_pointer(const void* tensor, int writes) {
  if (SplitProgram* const program = running())
    program->impl_->before_pointer(*static_cast<const at::TensorBase*>(tensor), writes > 0,
                                   writes >= 0);
}

const void* SplitProgram::archived_tensor(const void* tensor) {
  SplitProgram* const program = running();
  if (program == nullptr) return tensor;
  return &program->impl_->archived_tensor(*static_cast<const at::Tensor*>(tensor));
}

const void* SplitProgram::archived_bytes(const void* memory, std::size_t size) {
  SplitProgram* const program = running();
  return program == nullptr ? memory : program->impl_->archived_bytes(memory, size);
}

std::size_t SplitProgram::absent_bytes(const void* memory, std::size_t size) noexcept {
  const SplitProgram* const program = running();
  return program == nullptr ? 0 : program->impl_->absent().zeroes_at_end_of(memory, size);
}

void SplitProgram::read_record(void (*function)(), void* result, void* reader, const void* name,
                               const void* allocator) {
  using Allocator = std::optional<c10::Allocator*>;
  const auto read = reinterpret_cast<RecordMemory::Read>(function);
  auto& from = *static_cast<RecordMemory::Reader*>(reader);
  const auto& what = *static_cast<const std::string*>(name);
  const Allocator& into = *static_cast<const Allocator*>(allocator);
  SplitProgram* const program = running();
  RecordMemory::Record record =
      program == nullptr ? read(from, what, into) : RecordMemory::read(read, from, what, into);
  if (program != nullptr) {
    program->impl_->record_read(std::get<0>(record), std::get<1>(record));
  } else if (AbsentBytes::are_at(std::get<0>(record).get(), std::get<1>(record))) {
    constexpr std::string_view kReason =
        "a process that a rank has started reads an archive of this run, whose bytes are in the "
        "file of the first rank: read it where the program trains, or after the run";
    log_error("{}", kReason);
    throw UnsupportedError("{}", kReason);
  }
  new (result) RecordMemory::Record(std::move(record));
}

int SplitProgram::read_part(int file, void* memory, std::size_t size, off_t from) {
  return RecordMemory::read_part(file, memory, size, from) ? 1 : 0;
}

int SplitProgram::keeps_file(dev_t device, ino_t inode) {
  return ArchiveFile::was_loaded(device, inode) ? 1 : 0;
}

void SplitProgram::before_flag() {
  if (SplitProgram* const program = running()) program->impl_->before_flag();
}

void SplitProgram::leaf_made(void* tensor) {
  if (SplitProgram* const program = running())
    program->impl_->leaf_made(*static_cast<c10::TensorImpl*>(tensor));
}

void SplitProgram::parameter_registered(const void* parameter) {
  if (SplitProgram* const program = running())
    program->impl_->parameter_registered(*static_cast<const at::Tensor*>(parameter));
}

void SplitProgram::read_past_operators(const void* address) noexcept {
  SplitProgram* const program = running();
  if (program != nullptr) {
    program->impl_->read_past_operators(address);
  } else if (is_left_to_parent_.load()) {
    log_error("a forked child reads a tensor whose bytes are in no memory of its own: {}",
              kReadByOperators);
  }
}

void SplitProgram::before_fork() noexcept {
  if (SplitProgram* const program = running()) program->impl_->before_fork();
}

void SplitProgram::begin_micro_batch() { impl_->begin_micro_batch(); }

void SplitProgram::program_ends() noexcept {
  if (SplitProgram* const program = running()) program->impl_->program_ends();
}

void SplitProgram::drain() { impl_->drain(); }

std::vector<runtime::RanksReport::Row> SplitProgram::gather(const runtime::RankFigures& mine) {
  return impl_->gather(mine);
}

runtime::RanksTrace SplitProgram::trace(runtime::RecordedTrace mine, bool joins) {
  return impl_->trace(std::move(mine), joins);
}

runtime::LayerMoves SplitProgram::layer_moves() const { return impl_->layer_moves(); }
bool SplitProgram::has_given_up_lists() const { return impl_->has_given_up_lists(); }

void SplitProgram::finish() {
  impl_->finish();
  running_.store(nullptr);
}

void SplitProgram::note_ended(const void* address) noexcept { impl_->ended(address); }

}  // namespace spillway::split
