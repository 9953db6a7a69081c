#include "spillway/split/split_program.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absent_bytes.h"
#include "absent_reads.h"
#include "archive_exchange.h"
#include "call_arguments.h"
#include "deferred_calls.h"
#include "executor.h"
#include "first_rank.h"
#include "gradient_watch.h"
#include "list_calls.h"
#include "rank_figures.h"
#include "rank_log.h"
#include "rebalancing.h"
#include "shard_exchange.h"
#include "spillway/base/assert.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"
#include "spillway/phantoms/output_memo.h"
#include "spillway/phantoms/phantom_memory.h"
#include "spillway/phantoms/plain_tensor.h"
#include "spillway/recompute/generators.h"
#include "spillway/recompute/operator_rules.h"
#include "spillway/recompute/surroundings.h"
#include "spillway/runtime/recording/op_uses.h"
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
    "LibTorch tells of, or train without --split";

bool is_phantom(const c10::StorageImpl& storage) {
  return storage.data_ptr().get_deleter() == PhantomMemory::deleter();
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

pipeline::StageCuts cuts_of(const Layout& layout) {
  const std::uint32_t stages = layout.placement.stages();
  return layout.marks.empty() ? pipeline::StageCuts::by_bytes(stages)
                              : pipeline::StageCuts::by_begins(stages);
}

}  // namespace

class SplitProgram::Impl {
  static constexpr std::size_t kMostTasks = std::size_t{1} << 15;
  static constexpr std::uint64_t kTasksBetweenLooks = 256;
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
        deferred_(executor_, [this](PendingCall call, auto reads,
                                    auto writes) { submit(std::move(call), reads, writes); }),
        archives_(runtime_, transport_, job_) {
    if (options.rebalances && ownership_.placement().stages() > 1)
      rebalancing_.emplace(transport_, job_, ownership_.placement(), options.layout.in_flight(),
                           runtime_);
  }

  bool is_on_this_thread() const noexcept { return std::this_thread::get_id() == thread_; }

  bool is_in_parts(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
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
    const c10::ArrayRef<c10::IValue> arguments =
        torch::jit::last(stack, op.schema().arguments().size());
    phase_ = traits.autograd.phase;
    if (shards_) exchange_before(op, arguments);
    if (traits.autograd.phase == OpPhase::kOther && is_by_element(op, arguments)) {
      const auto groups = by_place(arguments[0].toTensorList());
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
    job_.control().begin_call(name);
    add_arguments(job_.control(), storages_, arguments);
    add_seed(op, arguments);
    collect_uses(op, arguments);
    if (shards_ && phase_ == OpPhase::kOther) note_update(name);
    OperatorCall call;
    call.kind = kind_of_call();
    call.autograd = traits.autograd;
    if (call.autograd.phase == OpPhase::kBackward)
      call.accumulates_for = parameter_that_accumulates();
    if (!marks_.have_all_come()) look_for_stage(name, call.autograd.phase);
    decide(call);
    if (shards_ && phase_ == OpPhase::kForward) note_forward();
    const bool is_ours = decision_->owners.contains(transport_.rank());
    if (may_defer(op, below, arguments, traits.autograd.phase)) {
      queue(op, below, stack, traits, /*is_deferred=*/true);
    } else if (is_ours && (decision_->owners.is_all() || !may_wait(op, below, arguments))) {
      compute_now(op, below, stack, traits, name);
    } else if (is_ours) {
      queue(op, below, stack, traits, /*is_deferred=*/false);
    } else {
      memo_.make(*outputs_, op, stack);
      name_results(op, stack);
    }
  }

  void check_other_thread(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
      if (is_phantom(storage_of(tensor)))
        job_.abort(
            message("{} runs on a thread of its own, with a tensor of the part of the program "
                    "that is split: train on the program's first thread, or without --split",
                    kept_name_of(op)));
    });
  }

  void before_pointer(const at::TensorBase& tensor, bool writes, bool keeps) {
    if (!may_ask() || !tensor.unsafeGetTensorImpl()->has_storage()) return;
    c10::StorageImpl& storage = storage_of(tensor);
    if (storage.data() == nullptr) return;
    const auto ordinal = storages_.ordinal_of(storage);
    if (!ordinal) return;
    exchange_of(*ordinal);
    const CallMark mark(*this);
    show(storage, {*ordinal, writes, tensor.requires_grad(), Bytes(storage.nbytes())});
    if (keeps) ownership_.keep_everywhere(*ordinal);
  }

  void leaf_made(c10::TensorImpl& leaf) {
    if (shards_ && is_on_this_thread()) order_.leaf_made(leaf);
  }
  void parameter_registered(const at::Tensor& parameter) {
    if (shards_ && is_on_this_thread()) order_.registered(parameter);
  }

  void record_read(const c10::DataPtr& memory) {
    if (may_ask() && has_absent_archives_) storages_.note_loaded(memory);
  }

  const void* archived_bytes(const void* memory, std::size_t size) {
    const auto ordinal = may_ask() ? storages_.at(memory) : std::nullopt;
    if (!ordinal) return memory;
    return archived(*ordinal, memory, size);
  }

  const at::Tensor& archived_tensor(const at::Tensor& tensor) {
    if (!may_ask() || !tensor.unsafeGetTensorImpl()->has_storage()) return tensor;
    const c10::StorageImpl& storage = storage_of(tensor);
    const auto ordinal = storages_.at(storage.data());
    if (!ordinal) return tensor;
    const void* const bytes = archived(*ordinal, storage.data(), storage.nbytes());
    if (bytes == storage.data()) return tensor;
    archived_tensor_ =
        phantoms::PlainTensor::of(*tensor.unsafeGetTensorImpl())
            .over(c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), borrowed(bytes)));
    return archived_tensor_;
  }

  /// In a signal handler, on the thread that has touched memory which is not there: it holds no
  /// lock of ours.
  void read_past_operators(const void* address) {
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

  void update() {
    job_.compare();
    ++steps_;
    is_updating_ = true;
    runtime_.step_updated();
  }

  void begin_step() {
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
    executor_.add_barrier([this, units, rebalances, step = steps_] {
      runtime_.step_boundary();
      if (rebalances) rebalancing_->measured(step, executor_.take_unit_seconds(units));
    });
  }

  /// The child has copies of what this process has, and asks nobody: what the program has drawn
  /// or filled, as rows of data that processes of a data loader read, has to be there.
  void before_fork() noexcept {
    if (!may_ask()) return;
    try {
      deferred_.for_each_but_parameters([&](StorageOrdinal ordinal, c10::StorageImpl& storage) {
        if (!ownership_.directory().at(ordinal).holders.is_all()) return;
        deferred_.want(ordinal, false);
        if (!executor_.has(ordinal)) return;
        const c10::Storage held = executor_.wait_for(ordinal, false, "a new process");
        if (storage.data() != held.data()) exchange_memory(storage, lent(held));
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
    executor_.lift_window();
    const std::uint64_t before = turn();
    ownership_.begin_micro_batch();
    if (turn() != before) limit_lead();
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
      if (const auto ordinal = storages_.at(address)) archives_.wait_for(*ordinal);
    storages_.ended(address);
  }

 private:
  using Members = std::vector<std::size_t>;  ///< Numbers of tensors in a list.

  /// The tensors of a list by the rank that keeps them; none: all.
  std::map<Rank, Members> by_place(const c10::List<at::Tensor>& list) {
    std::map<Rank, Members> groups;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const at::Tensor tensor = list.get(i);
      Rank rank;
      if (tensor.defined() && tensor.has_storage() && storage_of(tensor).data() != nullptr)
        if (const auto ordinal = storages_.ordinal_of(storage_of(tensor))) {
          const pipeline::StorageFacts& facts = ownership_.directory().at(*ordinal);
          rank = facts.home.is_some() ? facts.home : facts.computed_by;
        }
      groups[rank].push_back(i);
    }
    return groups;
  }

  /// A call for the tensors of each rank, in place of one that would bring all to the first's.
  void run_in_groups(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                     torch::jit::Stack& stack, const runtime::OpTraits& traits,
                     const std::map<Rank, Members>& groups) {
    const std::size_t count = op.schema().arguments().size();
    const torch::jit::Stack whole(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
    torch::jit::drop(stack, count);
    const std::size_t size = whole[0].toListRef().size();
    std::vector<at::Tensor> results(size);
    for (const auto& [rank, members] : groups) {
      torch::jit::Stack part = arguments_for(whole, size, members);
      is_in_parts(op, part);
      run(op, below, part, traits);
      if (part.empty()) continue;  // It writes in place.
      for (std::size_t i = 0; i < members.size(); ++i)
        results[members[i]] = part.back().toTensorList().get(i);
    }
    if (!op.schema().returns().empty()) stack.emplace_back(std::move(results));
  }

  /// In place of a copy at the first write, which bytes that move between ranks cannot have.
  void clone(c10::DispatchKeySet below, torch::jit::Stack& stack, const runtime::OpTraits& traits) {
    static const c10::OperatorHandle op =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
    stack.emplace_back();  // The memory format stays.
    is_in_parts(op, torch::jit::last(stack, 2));
    run(op, below, stack, traits);
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

  /// Ranks whose seeds differ go apart without another call.
  void add_seed(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
    if (recompute::rules_of(op).generator_argument >= 0 || draws())
      job_.control().add(generator_of(op, arguments).current_seed());
  }

  static at::Generator generator_of(const c10::OperatorHandle& op,
                                    c10::ArrayRef<c10::IValue> arguments) {
    return recompute::generator_of(arguments, recompute::rules_of(op).generator_argument);
  }

  /// Whether the program is in here, or in a kernel that it runs from here.
  class CallMark {
   public:
    explicit CallMark(Impl& program) : program_(program) { program_.is_in_call_ = true; }
    ~CallMark() { program_.is_in_call_ = false; }
    CallMark(const CallMark&) = delete;
    CallMark& operator=(const CallMark&) = delete;

   private:
    Impl& program_;
  };

  /// Whether the program itself runs on this thread, and neither an operator nor this class.
  bool may_ask() const { return is_on_this_thread() && !is_in_call_ && !phantoms::is_on_trial(); }

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
    has_absent_archives_ |= !holders.is_all();
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
    const auto& accesses = recompute::rules_of(op).uses;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t position) {
      const bool writes = accesses[position] != recompute::ArgumentUse::kRead;
      c10::StorageImpl& storage = storage_of(tensor);
      const auto ordinal = storages_.ordinal_of(storage);
      if (!ordinal) {
        if (has_absent_archives_ && AbsentBytes::are_at(storage.data(), storage.nbytes()))
          job_.abort(message("{} reads an archive of this run, whose bytes are in the file of the "
                             "first rank: load it without mmap",
                             kept_name_of(op)));
        writes_foreign_ |= writes;
        if (const auto aliased = storages_.at(storage.data())) leave_to_program(*aliased, op);
        return;
      }
      uses_.push_back({*ordinal, writes, tensor.requires_grad(), Bytes(storage.nbytes())});
      used_.push_back(&storage);
    });
  }

  /// Memory that the program has made a second storage of.
  void leave_to_program(StorageOrdinal ordinal, const c10::OperatorHandle& op) {
    const pipeline::StorageFacts& facts = ownership_.directory().at(ordinal);
    if (facts.is_everywhere) return;
    if (!facts.holders.is_all())
      job_.abort(
          message("{} uses a tensor that the program has made over the memory of another one "
                  "(from_blob), whose bytes are on other ranks: use that one, or train without "
                  "--split",
                  kept_name_of(op)));
    deferred_.want(ordinal, true);
    if (executor_.has(ordinal)) executor_.wait_for(ordinal, true, kept_name_of(op));
    ownership_.keep_everywhere(ordinal);
  }

  /// What the program has made past LibTorch has no number, and is the same on all ranks.
  OperatorKind kind_of_call() const {
    return outputs_->making == Making::kPhantoms && !writes_foreign_ ? OperatorKind::kComputes
                                                                     : OperatorKind::kSteers;
  }

  StorageOrdinal parameter_that_accumulates() {
    const at::Tensor* const variable = variable_of_running_node();
    if (variable == nullptr || !variable->unsafeGetTensorImpl()->has_storage()) return {};
    return storages_.ordinal_of(storage_of(*variable)).value_or(StorageOrdinal());
  }

  /// The rest of a call that has begun, up to its kernel.
  void decide(OperatorCall& call) {
    if (archives_.owes_any()) archives_.wait_for_all();
    for (const StorageOrdinal ordinal : storages_.take_ended()) {
      ownership_.ended(ordinal);
      deferred_.drop(ordinal);
      if (shards_) gradients_.ended(ordinal);
    }
    for (const StorageOrdinal ordinal : storages_.take_loaded())
      ownership_.found_on(kFirst, ordinal);
    call.uses = uses_;
    const std::uint64_t before = turn();
    decision_ = &ownership_.decide(call);
    if (turn() != before) limit_lead();
    // Sums of gradients and updates hold no activations.
    micro_batch_.reset();
    if (call.autograd.phase != OpPhase::kOther && !call.accumulates_for.is_some())
      micro_batch_ = turn();
    action_ = action_of(call);
    job_.control().add(decision_->owners.is_all() ? transport_.ranks()
                                                  : decision_->owners.first().value());
    job_.control().end_call();
    for (const Decision::Dealt& dealt : decision_->dealt) {
      if (shards_) begin_equal(dealt);
      // Where another rank's bytes come to, none of its own may come after them.
      if (!dealt.holders.contains(transport_.rank())) let_go_of(number_of_use(dealt.parameter));
    }
    for (const Move& move : decision_->moves) add_move(move);
    free_stale();
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
    if (!decision_->owners.contains(transport_.rank())) return;
    for (std::size_t i = 0; i < uses_.size(); ++i) {
      deferred_.want(uses_[i].storage, true);
      share(i);
    }
    // One storage may have the gradients of a whole model.
    constexpr auto kMost = static_cast<std::ptrdiff_t>(ShardExchange::kMostParameters);
    while (!parameters.empty()) {
      const auto count = std::min(kMost, std::ssize(parameters));
      executor_.add_effort(shards_->mean_of(step_, {parameters.begin(), parameters.begin() + count},
                                            element, {ranges.begin(), ranges.begin() + count}),
                           ordinals, /*writes=*/true);
      parameters.erase(parameters.begin(), parameters.begin() + count);
      ranges.erase(ranges.begin(), ranges.begin() + count);
    }
    if (decision_->owners.is_all()) show_uses(kName);
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

  /// The program does not run ahead for ever: its batches take memory.
  void limit_lead() {
    const std::uint64_t lead = 2 * std::uint64_t{ownership_.placement().stages()};
    if (turn() > lead) executor_.wait_until_begun(turn() - lead);
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
                       sends || is_copy ? Executor::MicroBatch() : micro_batch_, action_);
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
      if (!executor_.has(uses_[i].storage)) continue;
      const c10::Storage held = executor_.wait_for(uses_[i].storage, uses_[i].writes, who);
      SPILLWAY_ASSERT(held.unsafeGetStorageImpl() != nullptr);
      if (used_[i]->data() != held.data()) exchange_memory(*used_[i], lent(held));
    }
  }

  /// What this rank no longer holds of what the call uses.
  void free_stale() {
    for (std::size_t i = 0; i < uses_.size(); ++i)
      if (!ownership_.directory().at(uses_[i].storage).holders.contains(transport_.rank()))
        let_go_of(i);
  }

  void let_go_of(std::size_t number) {
    if (!is_phantom(*used_[number])) take_memory(*used_[number]);
    deferred_.drop(uses_[number].storage);
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
    constexpr std::size_t kMost = std::size_t{64} << 20;
    bool may = true;
    for_each_tensor(arguments, [&](const at::Tensor& tensor, std::size_t) {
      const c10::StorageImpl& storage = storage_of(tensor);
      may &= storage.nbytes() <= kMost || !is_the_programs(storages_.at(storage.data()));
    });
    return may;
  }

  bool is_the_programs(std::optional<StorageOrdinal> ordinal) const {
    return !ordinal || ownership_.directory().at(*ordinal).is_everywhere;
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
    job_.abort(message("{} has failed on one rank, and the others went on: {}", name,
                       first_line(error.what())));
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
      if (begins_anew_ && !is_phantom(*used_.front())) take_memory(*used_.front());
    } else {
      for (const OperatorUse& use : uses_) deferred_.want(use.storage, use.writes);
      watch_flags(*call.surroundings);
      look_at_queue();
    }
    reads_.clear();
    writes_.clear();
    record_arguments(arguments, call);
    if (draws()) draw_from(recompute::copy_of(generator_of(op, arguments)), call);
    memo_.make(*outputs_, op, stack);
    name_results(op, stack);
    call.results = made_numbers_;
    if (is_deferred) {
      defer(std::move(call), op, stack);
      return;
    }
    for (const pipeline::MadeStorage& made : made_) writes_.push_back(made.storage);
    executor_.add_call(std::move(call), reads_, writes_, micro_batch_,
                       segment(traits.autograd.phase));
  }

  void look_at_queue() {
    if (++queued_ % kTasksBetweenLooks == 0) executor_.wait_until_left(kMostTasks);
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
    deferred_.add(std::move(call), reads_, written);
  }

  /// A call that has waited runs under the flags of the process that held for it.
  void submit(PendingCall call, std::span<const StorageOrdinal> reads,
              std::span<const StorageOrdinal> writes) {
    if (!flags_) flags_ = recompute::Surroundings::of_this_thread()->flags;
    const bool differs = *flags_ != call.surroundings->flags;
    if (differs) executor_.wait_until_left(0);
    look_at_queue();
    executor_.add_call(std::move(call), reads, writes, std::nullopt, std::nullopt);
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

  void record_arguments(c10::ArrayRef<c10::IValue> arguments, PendingCall& call) {
    const auto one = [&](const at::Tensor& tensor, std::size_t argument, std::int32_t element) {
      if (!tensor.defined()) return;
      ArgumentTensor noted;
      noted.argument = static_cast<std::uint32_t>(argument);
      noted.element = element;
      noted.tensor = phantoms::PlainTensor::of(*tensor.unsafeGetTensorImpl());
      record_storage(storage_of(tensor), noted);
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

  void record_storage(c10::StorageImpl& storage, ArgumentTensor& noted) {
    const auto ordinal = storage.data() == nullptr ? std::nullopt : storages_.ordinal_of(storage);
    if (is_the_programs(ordinal)) {
      noted.copy = copy_of_shown(storage, noted.tensor);
      return;
    }
    const std::size_t number = number_of_use(*ordinal);
    const bool writes = uses_[number].writes;
    // As for a number among tensors: nobody else needs it.
    if (!writes && !deferred_.are_here(*ordinal) && storage.nbytes() <= kSmall &&
        !is_phantom(storage) && !executor_.has(*ordinal)) {
      noted.copy = copy_of_shown(storage, noted.tensor);
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

  /// The bytes that a tensor shows, at an address as aligned as theirs: vectorised sums begin at
  /// aligned ones, so another one might give other bits. `tensor` then lies in the copy.
  static c10::Storage copy_of_shown(const c10::StorageImpl& storage,
                                    phantoms::PlainTensor& tensor) {
    constexpr std::size_t kAlignment = 64;
    const std::size_t item = c10::elementSize(tensor.dtype);
    const runtime::ViewBytes shown = runtime::bytes_of_view(
        static_cast<std::uint64_t>(tensor.offset), {tensor.sizes.data(), tensor.sizes.size()},
        {tensor.strides.data(), tensor.strides.size()}, item);
    const std::byte* from = static_cast<const std::byte*>(storage.data()) + shown.begin;
    const std::size_t before = reinterpret_cast<std::uintptr_t>(from) % kAlignment / item * item;
    const std::size_t size = shown.size.count();
    c10::Storage copy = made_storage(before + size);
    if (size > 0) std::memcpy(static_cast<std::byte*>(copy.mutable_data()) + before, from, size);
    tensor.offset = static_cast<std::int64_t>(before / item);
    return copy;
  }

  /// Numbers the storages that a call has made, or will make.
  void name_results(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    made_.clear();
    made_numbers_.clear();
    std::size_t number = 0;
    for_each_tensor(torch::jit::last(stack, op.schema().returns().size()),
                    [&](const at::Tensor& tensor, std::size_t) {
                      const std::size_t here = number++;
                      const c10::StorageImpl& storage = storage_of(tensor);
                      if (storages_.knows(storage)) return;
                      const auto ordinal = storages_.ordinal_of(storage);
                      if (!ordinal) return;
                      made_.push_back({*ordinal, Bytes(storage.nbytes())});
                      made_numbers_.push_back({here, *ordinal, Bytes(storage.nbytes())});
                    });
    ownership_.made(made_);
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
  phantoms::OutputMemo memo_;
  ParameterOrder order_;  ///< With several shards.
  StorageTable storages_;
  const std::unique_ptr<RankLog> log_;           ///< Null: no trace is wanted.
  const std::unique_ptr<ShardExchange> shards_;  ///< Null: there is one.
  GradientWatch gradients_;                      ///< With several shards.
  Executor executor_;
  DeferredCalls deferred_;
  ArchiveExchange archives_;
  AbsentBytes absent_;
  StagedBytes archived_;        ///< On the first rank: of the latest tensor.
  at::Tensor archived_tensor_;  ///< The latest.
  std::optional<Rebalancing> rebalancing_;
  std::uint64_t steps_ = 0;
  std::uint64_t step_ = 1;    ///< Of the latest backward.
  std::uint64_t means_ = 0;   ///< That this step has asked for.
  bool is_updating_ = false;  ///< The optimizer has begun to write.
  bool has_updated_ = false;  ///< It has written a parameter.
  bool has_absent_archives_ = false;

  std::optional<recompute::Surroundings::Flags> flags_;  ///< Of the latest call in the queue.
  std::uint64_t queued_ = 0;                             ///< Calls.

  // Of the running call.
  bool is_in_call_ = false;
  OpPhase phase_{};
  const CallOutputs* outputs_ = nullptr;
  const Decision* decision_ = nullptr;  ///< Null: it has no use for bytes.
  Executor::MicroBatch micro_batch_;
  ForAction action_;
  bool writes_foreign_ = false;
  bool begins_anew_ = false;     ///< What its first argument shows, which waits.
  std::uint64_t first_new_ = 0;  ///< Number of the first storage that is new with it.
  c10::ArrayRef<c10::IValue> arguments_;
  std::vector<OperatorUse> uses_;
  std::vector<c10::StorageImpl*> used_;  ///< Their storages.
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
}

SplitProgram::~SplitProgram() { running_.store(nullptr); }

bool SplitProgram::is_on_this_thread() const noexcept { return impl_->is_on_this_thread(); }

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

void SplitProgram::record_read(const void* record) {
  if (SplitProgram* const program = running())
    program->impl_->record_read(
        std::get<0>(*static_cast<const std::tuple<c10::DataPtr, std::size_t>*>(record)));
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

void SplitProgram::update() { impl_->update(); }

void SplitProgram::begin_step() { impl_->begin_step(); }

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

void SplitProgram::finish() {
  impl_->finish();
  running_.store(nullptr);
}

void SplitProgram::note_ended(const void* address) noexcept { impl_->ended(address); }

}  // namespace spillway::split
