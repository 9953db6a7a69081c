#include "split_program_impl.h"

#include <ATen/core/enum_tag.h>
#include <c10/core/AutogradState.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "call_arguments.h"
#include "first_rank.h"
#include "list_calls.h"
#include "record_memory.h"
#include "spillway/base/log.h"
#include "spillway/recompute/generators.h"
#include "spillway/recompute/operator_rules.h"
#include "spillway/recompute/sparse_parts.h"
#include "spillway/recompute/surroundings.h"

namespace spillway::split {
namespace {

using phantoms::Making;
using pipeline::Decision;
using pipeline::Move;
using pipeline::OperatorCall;
using pipeline::OperatorKind;
using pipeline::OperatorUse;
using pipeline::StorageOrdinal;

/// At most; the hash keeps the calls of two such spans to look back at.
constexpr std::uint64_t kCallsBetweenComparisons = 8192;

pipeline::StageCuts cuts_of(const Layout& layout) {
  const std::uint32_t stages = layout.placement.stages();
  return layout.marks.empty() ? pipeline::StageCuts::by_bytes(stages)
                              : pipeline::StageCuts::by_begins(stages);
}

/// Whether a call fills the storage of its first argument, and reads nothing of it.
bool fills_first(const CalledOperator& called, const StorageTable& storages) {
  if (!DeferRule::of(called.op).overwrites || !called.arguments[0].isTensor()) return false;
  const at::Tensor& first = called.arguments[0].toTensor();
  return first.defined() && first.has_storage() && shows_all(first) &&
         storages.at(storage_of(first).data());
}

/// What others write in part was perhaps never filled.
bool reads_what_it_writes(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::pointwise) && !DeferRule::of(op).overwrites &&
         op.operator_name().name != "aten::masked_fill_";
}

}  // namespace

SplitProgram::Impl::Impl(SplitOptions options)
    : runtime_(options.runtime),
      transport_(options.transport),
      job_(options.job),
      compute_(options.compute),
      ownership_(options.layout.placement, cuts_of(options.layout)),
      marks_(options.layout.marks),
      plan_(std::move(options.plan)),
      min_storage_(options.min_storage),
      replicated_(options.replicate),
      memo_({.hidden_keys = options.hidden_keys, .try_on_gpu = options.try_on_gpu}),
      devices_(options.hidden_keys, options.run_beside),
      between_devices_(options.job_transport, options.transport.ranks(), devices_,
                       options.least_paged),
      storages_(options.deleter),
      data_(ownership_.directory(), devices_),
      log_(options.traces ? std::make_unique<RankLog>() : nullptr),
      shards_(options.exchange
                  ? std::make_unique<ShardExchange>(runtime_, std::move(*options.exchange),
                                                    devices_, between_devices_)
                  : nullptr),
      executor_(runtime_, transport_, job_, compute_,
                options.layout.windows[options.transport.rank().value()], shards_.get(), log_.get(),
                devices_, between_devices_),
      lists_(options.layout, options.transport.rank(), executor_),
      lead_(ownership_, executor_, lists_),
      deferred_(executor_,
                [this](PendingCall call, auto reads, auto writes) {
                  lead_.submit(std::move(call), reads, writes, call_.micro_batch);
                }),
      memory_(storages_, executor_, deferred_),
      pending_(storages_, data_, memory_, deferred_),
      means_(shards_ ? std::make_unique<GradientMeans>(*shards_, job_, storages_, order_,
                                                       ownership_.directory(), executor_, memory_)
                     : nullptr),
      archives_(runtime_, transport_, job_, storages_, ownership_.directory(), memory_, devices_),
      steps_(runtime_, options.runtime_of_gpu, transport_, job_, ownership_, executor_, lists_,
             replicated_, means_.get()),
      notices_(transport_.rank()) {
  if (options.rebalances && ownership_.placement().stages() > 1)
    steps_.rebalance(options.hosts, options.layout.in_flight());
}

bool SplitProgram::Impl::is_in_parts(const c10::OperatorHandle& op,
                                     c10::ArrayRef<c10::IValue> arguments) {
  const bool before = std::exchange(is_in_call_, true);  // A trial makes tensors of its own.
  const auto is_over = c10::make_scope_exit([this, before] { is_in_call_ = before; });
  try {
    call_.outputs = &memo_.outputs_of(op, arguments);
  } catch (const c10::OutOfMemoryError& error) {
    if (!recompute::gpu_of(arguments)) throw;
    // What is free on a GPU differs between ranks.
    refuse(message("each rank tries an operator of a new kind on its GPU, and this one has no room "
                   "for that: {} (allow more with --budget cuda=SIZE)",
                   failure_text(error)));
  }
  return call_.outputs->making == Making::kParts;
}

void SplitProgram::Impl::run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                             torch::jit::Stack& stack, const runtime::OpTraits& traits) {
  const auto copied = std::exchange(read_next_, {});
  const auto of_first_tensor = [&] {
    const c10::IValue& value = torch::jit::peek(stack, 0, op.schema().arguments().size());
    return value.isTensor() ? memory_.number_of(storage_of(value.toTensor())) : std::nullopt;
  };
  const bool is_read =
      copied && kept_name_of(op) == "aten::_to_copy" && of_first_tensor() == copied;
  run_called(op, below, stack, traits);
  if (is_read) before_pointer(stack.back().toTensor(), /*writes=*/false, /*keeps=*/false);
}

void SplitProgram::Impl::run_called(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                                    torch::jit::Stack& stack, const runtime::OpTraits& given) {
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  runtime::OpTraits traits = given;
  const CalledOperator called{op, below, stack, traits, kept_name_of(op), arguments};
  const auto run_as_called = [this](const c10::OperatorHandle& other, c10::DispatchKeySet keys,
                                    torch::jit::Stack& with, const runtime::OpTraits& of_it) {
    is_in_parts(other, torch::jit::last(with, other.schema().arguments().size()));
    run(other, keys, with, of_it);
  };
  // In place of a copy at the first write, which bytes that move between ranks cannot have.
  if (called.name == "aten::_lazy_clone") return run_clone(below, stack, traits, run_as_called);
  look_at_device(called);
  has_gone_back_ |= traits.autograd.phase == OpPhase::kBackward;
  if (moves_parameter(called)) traits.autograd = {.phase = OpPhase::kOther};
  recompute::leave_out_unread(op, stack);
  call_.phase = traits.autograd.phase;
  if (means_) {
    const auto means =
        means_->read_by(op, called.arguments, call_.phase, /*step=*/steps_.count() + 1);
    if (call_.outputs->making != Making::kNoBytes) average(means);
  }
  if (call_.phase == OpPhase::kOther && is_by_element(called)) {
    const auto groups =
        by_place(called, [this](const at::Tensor& tensor) { return facts_of(tensor); });
    if (groups.size() > 1) return run_in_groups(called, groups, run_as_called);
  }
  const auto mark = call_mark();
  // Of these ranks may make others: a data loader does where its workers' tensors come in another
  // order. What they make is known when it is used.
  if (call_.outputs->making == Making::kNoBytes) {
    call_.decision = nullptr;
    return compute_now(called);
  }
  OperatorCall call;
  describe(called, call);
  decide(call);
  look_at_order(called);
  const Decision& decision = *call_.decision;
  const bool is_ours = decision.owners.contains(transport_.rank());
  const bool is_deferred = pending_.may_defer(called, call_);
  const bool runs_now = !is_deferred && is_ours &&
                        ((decision.owners.is_all() && !decision.updates_replicated) ||
                         !pending_.may_wait(called, call_));
  if (!runs_now || call_.makes_more_than(data_.size_read())) data_.add_read();
  if (runs_now) {
    compute_now(called);
  } else if (is_deferred || is_ours) {
    queue(called, is_deferred);
  } else {
    memo_.make(*call_.outputs, op, stack);
    name_results(called);
  }
}

const pipeline::StorageFacts* SplitProgram::Impl::facts_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || storage_of(tensor).data() == nullptr)
    return nullptr;
  const auto ordinal = memory_.number_of(storage_of(tensor));
  return ordinal ? &ownership_.directory().at(*ordinal) : nullptr;
}

void SplitProgram::Impl::begin_call() {
  is_in_call_ = true;
  data_.begin_call();
  call_.fills_first = false;
}

/// What the call is for all ranks, up to who computes it.
void SplitProgram::Impl::describe(const CalledOperator& called, OperatorCall& call) {
  if (!call_.is_on_host && !has_asked_devices_) start_device_messages();
  begin_uses(called);
  call.kind = call_.kind();
  call.autograd = called.traits.autograd;
  call.uses = call_.uses.all();
  if (ownership_.begins_step(call)) {
    begin_step_before(called);
    call.uses = call_.uses.all();
  }
  if (++calls_ % kCallsBetweenComparisons == 0) job_.compare();
  job_.control().begin_call(called.name);
  add_arguments(job_.control(), storages_, called.arguments);
  add_draws(called);
  if (call_.phase == OpPhase::kBackward) call.accumulates_for = parameter_that_accumulates();
  if (!marks_.have_all_come()) look_for_stage(called.name);
  if (!replicated_.are_none() && call_.phase == OpPhase::kForward)
    call.replicates = replicated_.note(called.name, ownership_.has_parameter(call));
  if (ownership_.units().count() == 0)
    notices_.called_before_training(called.name, call_.phase, call_.uses.all());
}

void SplitProgram::Impl::begin_uses(const CalledOperator& called) {
  call_.arguments = called.arguments;
  call_.first_new = storages_.next();
  collect_uses(called);
  if (call_.phase == OpPhase::kForward) look_for_parameters();
}

/// Handlers of signals may compute, with all that is kept of the running call.
void SplitProgram::Impl::begin_step_before(const CalledOperator& called) {
  is_in_call_ = false;
  steps_.begin(uses_gpu_);
  call_.phase = OpPhase::kForward;
  is_in_parts(called.op, called.arguments);
  begin_call();
  begin_uses(called);
}

void SplitProgram::Impl::collect_uses(const CalledOperator& called) {
  call_.uses.clear();
  call_.writes_foreign = false;
  for_each_tensor(called.arguments, [&](const at::Tensor& tensor, std::size_t) {
    storages_.ordinal_of(storage_of(tensor));  // By which new ones are told from others below.
  });
  data_.note_met(storages_.next());
  note_loaded();
  call_.fills_first = fills_first(called, storages_);
  const recompute::OperatorRules& rules = recompute::rules_of(called.op);
  call_.takes_generator = rules.generator_argument >= 0;
  for_each_tensor(called.arguments, [&](const at::Tensor& tensor, std::size_t position) {
    const bool writes = rules.uses[position] != recompute::ArgumentUse::kRead;
    const bool reads = !writes || reads_what_it_writes(called.op);
    c10::StorageImpl& storage = storage_of(tensor);
    const auto ordinal = memory_.number_of(storage);
    if (!ordinal) {
      archives_.check_mapped(storage, called.name);
      call_.writes_foreign |= writes;
      if (const auto aliased = storages_.at(storage.data()))
        leave_to_program(*aliased, storage, called.name);
      notices_.foreign_read(called.name, call_.phase, tensor);
      if (reads) data_.note_read({}, tensor);
      return;
    }
    memory_.show_kept(storage, *ordinal, called.name);
    call_.uses.add({*ordinal, writes, tensor.requires_grad(), Bytes(storage.nbytes())}, storage);
    const bool is_first = call_.fills_first && position == 0;
    // A parameter's memory is its initialiser's.
    if (is_first && tensor.requires_grad() && ordinal->value() >= call_.first_new)
      data_.note_taken(*ordinal);
    if (!tensor.is_cpu()) note_of_device(*ordinal, tensor, reads);
    if (!is_first) data_.add(*ordinal);
    if (reads && data_.is_the_programs(ordinal) && !is_phantom(storage))
      data_.note_read(ordinal, tensor);
  });
  // What is made by phantoms takes plain tensors alone.
  if (call_.outputs->making != Making::kPhantoms) collect_parts(called, rules);
}

/// What of GPUs the call uses.
void SplitProgram::Impl::look_at_device(const CalledOperator& called) {
  const auto device = recompute::gpu_of(called.arguments);
  call_.is_on_host = !device;
  if (!device) return;
  if (!uses_gpu_)
    takes_threads_place_ = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  const std::string objection = objection_to(called, *device);
  if (!objection.empty()) refuse(objection);
  uses_gpu_ = true;
}

/// NCCL waits for a rank that does not come without telling why it does not.
void SplitProgram::Impl::meet(std::string_view call) {
  job_.control().begin_call(call);
  job_.control().end_call();
  split::meet(transport_, [&](const device::Event& event, Rank peer) {
    job_.wait(event, peer, [call] { return std::string(call); });
  });
}

/// At the first operator of a GPU, which is the same one on all ranks.
void SplitProgram::Impl::start_device_messages() {
  has_asked_devices_ = true;
  if (transport_.ranks() == 1 && !shards_) return;
  meet(pipeline::ControlHash::kFirstUseOfGpu);
  try {
    between_devices_.start(c10::Device(c10::DeviceType::CUDA, 0),
                           shards_ && shards_->order() == allreduce::Order::kFast);
  } catch (const Error& error) {
    job_.abort(error.what());
  }
  if (between_devices_.is_on()) executor_.wake_by(between_devices_.make_notifier());
}

/// When nothing is under way, and LibTorch's part for GPUs is still there.
void SplitProgram::Impl::stop_device_messages() {
  if (!between_devices_.is_on()) return;
  meet(pipeline::ControlHash::kEndOfProgram);
  executor_.wake_by(transport_.make_notifier());
  between_devices_.stop();
}

/// Whether a model that has not trained comes to its GPU: LibTorch's Module::to looks like forward.
bool SplitProgram::Impl::moves_parameter(const CalledOperator& called) const {
  if (call_.is_on_host || has_gone_back_ || called.name != "aten::_to_copy") return false;
  const at::Tensor& moved = called.arguments[0].toTensor();
  return moved.is_cpu() && moved.is_leaf() && moved.requires_grad() && order_.is_declared(moved);
}

/// Nobody writes memory of a GPU but by operators, unless he has had a pointer with a type. Who
/// reads what no operator of this thread has made, gets what another thread has.
void SplitProgram::Impl::note_of_device(StorageOrdinal ordinal, const at::Tensor& tensor,
                                        bool reads) {
  if (ordinal.value() < call_.first_new || !data_.is_the_programs(ordinal)) return;
  if (reads) data_.note_read(ordinal, tensor);
  data_.note_taken(ordinal);
}

/// What sparse arguments are made of, which all ranks need.
void SplitProgram::Impl::collect_parts(const CalledOperator& called,
                                       const recompute::OperatorRules& rules) {
  for_each_of_any_kind(called.arguments, [&](const at::Tensor& tensor, std::size_t position) {
    if (tensor.unsafeGetTensorImpl()->has_storage()) return;
    const bool writes = rules.uses[position] != recompute::ArgumentUse::kRead;
    recompute::for_each_part(tensor, [&](const at::Tensor& part) {
      c10::StorageImpl& storage = storage_of(part);
      const auto ordinal = storage.data() == nullptr ? std::nullopt : memory_.number_of(storage);
      if (!ordinal) return;
      call_.uses.add({*ordinal, writes, false, Bytes(storage.nbytes())}, storage);
      if (data_.is_the_programs(ordinal) && !is_phantom(storage)) data_.add_now(part);
    });
  });
}

void SplitProgram::Impl::note_loaded() {
  for (const StorageTable::Loaded& loaded : storages_.take_loaded()) {
    if (loaded.is_elsewhere) ownership_.found_on(kFirst, loaded.storage);
    data_.note_loaded(loaded.storage, loaded.number);
  }
}

/// Memory that the program has made a second storage of, `alias`.
void SplitProgram::Impl::leave_to_program(StorageOrdinal ordinal, c10::StorageImpl& alias,
                                          std::string_view name) {
  const pipeline::StorageFacts& facts = ownership_.directory().at(ordinal);
  if (facts.is_everywhere) return;
  if (!facts.holders.is_all())
    job_.abort(
        message("{} uses a tensor that the program has made over the memory of another one "
                "(from_blob), whose bytes are on other ranks: use that one, or train without "
                "--split",
                name));
  memory_.show_in(alias, ordinal, name);
  keep_everywhere(ordinal);
}

void SplitProgram::Impl::keep_everywhere(StorageOrdinal ordinal) {
  ownership_.keep_everywhere(ordinal);
  memory_.keep(ordinal);
}

/// Brings the bytes of a storage to all ranks, for the program to look at.
void SplitProgram::Impl::show(c10::StorageImpl& storage, const OperatorUse& use) {
  constexpr std::string_view kName = "a pointer to a tensor";
  job_.control().begin_call(kName);
  job_.control().add(use.storage.value());
  call_.uses.clear();
  call_.uses.add(use, storage);
  OperatorCall call;
  call.kind = OperatorKind::kSteers;
  decide(call);
  show_uses(kName);
}

/// Among leaves that forward has not used, or only as free ones.
void SplitProgram::Impl::look_for_parameters() {
  for (std::size_t i = 0; i < call_.uses.size(); ++i) {
    const OperatorUse& use = call_.uses[i];
    const pipeline::StorageFacts& facts = ownership_.directory().at(use.storage);
    if (use.requires_gradient && !facts.unit && !facts.is_of_forward)
      call_.uses.declare(i, order_.is_declared(leaf_in(call_.arguments, call_.uses.storage(i))));
  }
}

/// Stages of a plan begin with operators of the first forward.
void SplitProgram::Impl::look_for_stage(std::string_view name) {
  if (call_.phase == OpPhase::kBackward && ownership_.units().count() > 0)
    job_.abort(message("{}: this plan is for another model or another size: {} (make the plan "
                       "again from a profile of this program)",
                       plan_, marks_.missing()));
  if (call_.phase != OpPhase::kForward) return;
  const auto uses = call_.uses.all();
  const auto& made = call_.outputs->storages;
  const auto is_counted = [&](std::size_t bytes) { return bytes >= min_storage_.count(); };
  if (std::none_of(uses.begin(), uses.end(),
                   [&](const OperatorUse& use) { return is_counted(use.size.count()); }) &&
      std::none_of(made.begin(), made.end(), is_counted))
    return;
  if (!marks_.begins_stage(name)) return;
  for (const OperatorUse& use : uses)
    if (ownership_.directory().at(use.storage).is_parameter && use.requires_gradient)
      job_.abort(message("{}: a stage of this plan begins with {}, whose parameter the program "
                         "has used before, in a forward of another size: let the first forward "
                         "be one of training, or train without --plan",
                         plan_, name));
  ownership_.begin_stage();
}

/// What the call draws: ranks whose seeds differ go apart without another call, and so do those of
/// which one has a thread that draws beside.
void SplitProgram::Impl::add_draws(const CalledOperator& called) {
  if (call_.takes_generator || call_.draws())
    job_.control().add(recompute::next_draw_of(generator_of(called.op, called.arguments)));
}

StorageOrdinal SplitProgram::Impl::parameter_that_accumulates() {
  const at::Tensor* const variable = variable_of_running_node();
  if (variable == nullptr || !variable->unsafeGetTensorImpl()->has_storage()) return {};
  return memory_.number_of(storage_of(*variable)).value_or(StorageOrdinal());
}

/// The rest of a call that has begun, up to its kernel.
void SplitProgram::Impl::decide(OperatorCall& call) {
  archives_.before_call();
  forget_ended();
  data_.note_met(storages_.next());
  note_loaded();
  call.uses = call_.uses.all();
  const Decision& decision = ownership_.decide(call);
  call_.decision = &decision;
  if (ownership_.has_updated() && !steps_.is_between()) steps_.end();
  lead_.look_at_micro_batch();
  // Sums of gradients and updates hold no activations.
  call_.micro_batch.reset();
  if (call.autograd.phase != OpPhase::kOther && !call.accumulates_for.is_some())
    call_.micro_batch = lead_.turn();
  call_.action = action_of(call.autograd.phase);
  call_.place = lists_.come_to(call_.action);
  job_.control().add(decision.owners.is_all() ? transport_.ranks()
                                              : decision.owners.first().value());
  if (decision.stage) compare_data();
  job_.control().end_call();
  const Rank here = transport_.rank();
  for (const Decision::Dealt& dealt : decision.dealt) {
    const bool is_here = dealt.holders.contains(here);
    const std::size_t number = call_.uses.number_of(dealt.parameter);
    if (means_)
      means_->begin_equal(dealt, call_.uses[number].size, call_.uses.storage(number),
                          call_.arguments, steps_.count() + 1, is_here);
    // Where another rank's bytes come to, none of its own may come after them.
    if (!is_here) memory_.let_go_of(call_.uses.storage(number), dealt.parameter);
  }
  for (const Move& move : decision.moves) add_move(move);
  free_stale();
}

void SplitProgram::Impl::forget_ended() {
  for (const StorageOrdinal ordinal : storages_.take_ended()) {
    ownership_.ended(ordinal);
    deferred_.drop(ordinal);
    data_.note_ended(ordinal);
    memory_.ended(ordinal);
    if (means_) means_->ended(ordinal);
  }
}

/// An operator of the model: what it uses is the executor's to change from now on.
void SplitProgram::Impl::compare_data() {
  data_.add_read();
  if (data_.number() != 0) job_.control().add_data(data_.number());
  for (const OperatorUse& use : call_.uses.all())
    if (use.writes) data_.note_taken(use.storage);
  for (const Decision::Dealt& dealt : call_.decision->dealt)
    if (!dealt.is_free_leaf) data_.note_taken(dealt.parameter);
}

ForAction SplitProgram::Impl::action_of(OpPhase phase) const {
  if (!call_.micro_batch || !call_.decision->stage) return std::nullopt;
  return schedule::Action{.kind = phase == OpPhase::kForward ? schedule::ActionKind::kForward
                                                             : schedule::ActionKind::kBackward,
                          .stage = *call_.decision->stage,
                          .micro_batch = static_cast<std::uint32_t>(
                              ownership_.micro_batch() / ownership_.placement().pipelines())};
}

/// Whether what has been decided fits to lists and to shards.
void SplitProgram::Impl::look_at_order(const CalledOperator& called) {
  const Decision& decision = *call_.decision;
  if (means_ && call_.phase == OpPhase::kOther)
    means_->note_update(called.name, call_.uses.all(), steps_.is_between());
  if (decision.follows_other || !lists_.has_before(call_.place, decision.follows_forward))
    lists_.give_up(message("{} of a micro-batch hangs on an earlier one of its step", called.name));
  if (decision.follows_backward)
    lists_.give_up(message("{} of forward hangs on backward of its step", called.name));
  if (means_ && call_.phase == OpPhase::kForward) means_->note_forward(call_.arguments);
}

/// Each as an operator that writes them.
void SplitProgram::Impl::average(const std::vector<GradientMeans::Storages>& means) {
  for (const GradientMeans::Storages& storages : means) average_together(storages);
}

void SplitProgram::Impl::average_together(const GradientMeans::Storages& storages) {
  constexpr std::string_view kName = "the mean over the shards";
  const auto mark = call_mark();
  job_.control().begin_call(kName);
  CallUses& uses = call_.uses;
  uses.clear();
  for (const auto& [ordinal, storage] : storages) {
    job_.control().add(ordinal.value());
    data_.note_taken(ordinal);
    uses.add({ordinal, true, false, Bytes(storage->nbytes())}, *storage);
  }
  OperatorCall call;
  call.autograd.phase = OpPhase::kOther;
  decide(call);
  const pipeline::RankSet& owners = call_.decision->owners;
  const bool is_here = owners.contains(transport_.rank());
  for (std::size_t i = 0; is_here && i < uses.size(); ++i)
    memory_.hand_over(uses.storage(i), uses[i].storage, /*writes=*/true);
  means_->ask_for(storages, owners.first(), is_here);
  if (owners.is_all()) show_uses(kName);
}

void SplitProgram::Impl::add_move(const Move& move) {
  const bool sends = move.from == transport_.rank();
  if (!sends && move.to != transport_.rank()) return;
  const std::size_t number = call_.uses.number_of(move.storage);
  if (sends) memory_.hand_over(call_.uses.storage(number), move.storage, /*writes=*/false);
  // Copies of parameters leave and arrive ahead of their micro-batch.
  const bool is_copy = ownership_.directory().at(move.storage).home.is_some();
  executor_.add_move(move, call_.uses[number].size, call_.uses.storage(number).device(),
                     sends || is_copy ? Executor::MicroBatch() : call_.micro_batch, call_.action,
                     lists_.place_of_move(call_.action, call_.place));
}

/// What this rank no longer holds of what the call uses.
void SplitProgram::Impl::free_stale() {
  for (std::size_t i = 0; i < call_.uses.size(); ++i) {
    const StorageOrdinal ordinal = call_.uses[i].storage;
    if (!ownership_.directory().at(ordinal).holders.contains(transport_.rank()))
      memory_.let_go_of(call_.uses.storage(i), ordinal);
  }
}

/// The program sees what this rank holds of what the call uses.
void SplitProgram::Impl::show_uses(std::string_view who) {
  for (std::size_t i = 0; i < call_.uses.size(); ++i)
    memory_.show(call_.uses.storage(i), call_.uses[i].storage, call_.uses[i].writes, who);
}

void SplitProgram::Impl::compute_now(const CalledOperator& called) {
  const Decision* const decision = call_.decision;
  if (decision != nullptr) show_uses(called.name);
  try {
    compute_(called.op, called.below, called.stack, called.traits);
  } catch (const c10::OutOfMemoryError& error) {
    end_alone(called.name, error);
  } catch (const std::bad_alloc& error) {
    end_alone(called.name, error);
  } catch (const std::exception& error) {
    if (decision == nullptr || decision->owners.is_all()) throw;  // As on all ranks.
    end_alone(called.name, error);
  }
  if (decision != nullptr) name_results(called);
}

/// Other ranks go on.
void SplitProgram::Impl::end_alone(std::string_view name, const std::exception& error) {
  job_.abort(message("{} has failed on one rank{} in step {}, and the others went on: {}", name,
                     call_.decision == nullptr ? std::string() : purpose_of(call_.action),
                     steps_.count() + 1, failure_text(error)));
}

void SplitProgram::Impl::queue(const CalledOperator& called, bool is_deferred) {
  CallUses& uses = call_.uses;
  const auto surroundings = recompute::Surroundings::of_this_thread();
  if (is_deferred) {
    if (call_.begins_anew) memory_.leave(uses.storage(0));
  } else {
    for (const OperatorUse& use : uses.all()) deferred_.want(use.storage, use.writes);
    lead_.before_call(surroundings->flags, call_.micro_batch);
  }
  for (std::size_t i = 0; i < uses.size(); ++i)
    if (uses[i].writes && RecordMemory::of(uses.storage(i)) != nullptr)
      memory_.take_memory(uses.storage(i));
  PendingCall call = pending_.record(called, call_, is_deferred);
  call.surroundings = surroundings;
  memo_.make(*call_.outputs, called.op, called.stack);
  name_results(called);
  (call.bytes.file == nullptr ? call.results : call.blanks) = call_.results;
  if (is_deferred) {
    pending_.defer(std::move(call), called, call_);
    return;
  }
  for (const pipeline::MadeStorage& made : call_.made) call_.writes.push_back(made.storage);
  executor_.add_call(std::move(call), call_.reads, call_.writes, call_.micro_batch, segment(),
                     call_.place);
}

std::optional<std::uint64_t> SplitProgram::Impl::segment() const {
  if (!call_.micro_batch || !call_.decision->stage) return std::nullopt;
  return 2 * (*call_.micro_batch * ownership_.placement().stages() + *call_.decision->stage) +
         (call_.phase == OpPhase::kBackward ? 1 : 0);
}

/// Numbers the storages that a call has made, or will make.
void SplitProgram::Impl::name_results(const CalledOperator& called) {
  call_.made.clear();
  call_.results.clear();
  data_.note_met(storages_.next());
  std::size_t number = 0;
  for_each_tensor(called.results(), [&](const at::Tensor& tensor, std::size_t) {
    const std::size_t here = number++;
    c10::StorageImpl& storage = storage_of(tensor);
    data_.add_result(tensor);
    if (storages_.knows(storage)) return;
    const auto ordinal = storages_.ordinal_of(storage);
    if (!ordinal) return;
    call_.made.push_back({*ordinal, Bytes(storage.nbytes())});
    call_.results.push_back({here, *ordinal, Bytes(storage.nbytes()), storage.device()});
  });
  ownership_.made(call_.made);
  // What a program's own operator makes of a file's name, or of nothing, is as made by hand.
  const bool is_made_of_tensors = call_.uses.size() > 0 || called.name.starts_with("aten::");
  if (is_made_of_tensors) data_.note_made(storages_.next());
  data_.end_call(call_.uses.all(), call_.made, call_.decision->stage.has_value(),
                 call_.fills_first);
}

}  // namespace spillway::split
