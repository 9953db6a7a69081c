#include "spillway/runtime/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <numeric>
#include <utility>

#include "held_storages.h"
#include "last_uses.h"
#include "runtime_parts.h"
#include "shared_pages.h"
#include "spillway/base/assert.h"
#include "spillway/base/log.h"
#include "spillway/base/per_thread.h"
#include "spillway/device/all_of.h"
#include "spillway/runtime/recomputing/recomputer.h"
#include "spillway/runtime/recording/profile_recording.h"
#include "spillway/runtime/recording/step_trace_recorder.h"
#include "spillway/runtime/rehearsal.h"

namespace spillway::runtime {

namespace {

// Stands before each small block: its size, and room to keep the block aligned for AVX-512.
constexpr std::size_t kSmallHeader = 64;

/// For which room was made.
void* small_block(swap::SwapEngine& engine, std::size_t size) {
  void* block = nullptr;
  if (::posix_memalign(&block, kSmallHeader, size + kSmallHeader) != 0) {
    engine.release_small(Bytes(size));
    throw std::bad_alloc();
  }
  *static_cast<std::size_t*>(block) = size;
  return static_cast<std::byte*>(block) + kSmallHeader;
}

}  // namespace

Runtime::OpContext& Runtime::context() const {
  return per_thread<OpContexts>().of[options_.number];
}

Runtime::Runtime(const RuntimeOptions& options, std::unique_ptr<swap::SwapEngine> engine,
                 const Clock& clock)
    : options_(options),
      clock_(clock),
      engine_(std::move(engine)),
      page_size_(engine_->page_size()),
      shared_(std::make_unique<SharedPages>(*engine_)),
      held_(std::make_unique<HeldStorages>(*engine_)),
      last_uses_(std::make_unique<LastUses>(*engine_)) {
  SPILLWAY_ASSERT(options_.number < kMostRuntimes);
  if (options_.learns) {
    const auto budget_pages = static_cast<std::uint32_t>(options_.budget / page_size_);
    guide_ = std::make_unique<StepGuide>(
        StepLearner::Options{.page_size = page_size_,
                             .budget_pages = budget_pages,
                             .rates = options_.rates,
                             .far = options_.far,
                             .rates_now = options_.rates_now,
                             .room = [this] { return room_for_plans(); },
                             .take_peak = [this] { return engine_->take_peak(); },
                             .moved = options_.moved,
                             .moment = options_.moment,
                             .planning = options_.planning,
                             .recording = options_.recording,
                             .trace = options_.trace},
        *engine_, clock_);
    if (options_.planning.recomputes)
      recomputer_ = std::make_unique<Recomputer>(
          Recomputer::Memory{*engine_, *engine_, *engine_},
          [this](profile::OpIndex place, const recompute::RecordedCall& call,
                 std::span<const RangeUse> uses,
                 const ReplayBody& body) { run_replay(place, call, uses, body); });
  }
  step_start_ = clock_.now();
}

Runtime::~Runtime() = default;

std::uint32_t Runtime::pages_of(std::size_t size) const {
  return static_cast<std::uint32_t>((size + page_size_.count() - 1) / page_size_.count());
}

/// Trainers that do not catch what is thrown end without a word about it that helps. Of each cause
/// once: there may be many threads, and trainers that try again.
void Runtime::note_refusal(const Error& error, const std::string& who, std::uint64_t signature) {
  if (!is_refusal(error)) return;
  const Refusal refusal = refusal_by(error, who);
  bool is_news = false;
  {
    std::lock_guard lock(step_mutex_);
    refuse_locked(refusal, signature);
    is_news = !std::exchange(is_told_.at(static_cast<std::size_t>(refusal.cause)), true);
  }
  if (is_news) log_error("{}", sentence_of(refusal));
}

void Runtime::refuse_locked(Refusal refusal, std::uint64_t signature) {
  refusal_ = std::move(refusal);
  refused_signature_ = signature;
  is_refused_.store(true, std::memory_order_relaxed);
}

/// The trainer has caught what was thrown, and goes on.
void Runtime::end_refusal_locked() {
  refusal_ = {};
  is_refused_.store(false, std::memory_order_relaxed);
}

/// What was refused got through after all. Others may do so while the program ends, a checkpoint
/// that is written on the way out for one.
void Runtime::note_success(const OpContext& op) {
  if (!is_refused_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(step_mutex_);
  if (refused_signature_ == op.place()) end_refusal_locked();
}

void Runtime::note_need_locked(std::uint64_t pages, const std::string& who) {
  if (pages <= largest_need_pages_.load()) return;
  largest_need_pages_.store(pages);
  largest_op_ = who;
  is_largest_op_early_ = boundaries_ == 0;
  is_largest_op_cut_ = false;
}

void* Runtime::allocate_small(std::size_t size, OpContext& op) {
  with_room(op, 0,
            [&] { engine_->account_small(Bytes(size), op.is_running ? &op.pins : nullptr); });
  note_success(op);
  return small_block(*engine_, size);
}

swap::SwapEngine::Allocation Runtime::allocate_paged(OpContext& op, std::size_t size) {
  swap::SwapEngine::Allocation made;
  if (op.fills_on_host) return engine_->allocate_unfilled(Bytes(size));
  if (!is_of_host() && op.is_running) {
    if (const auto again = engine_->reuse(Bytes(size), op.pins, given_so_far())) {
      note_success(op);
      return *again;
    }
  }
  if (op.is_running && !op.fills && 8 * Bytes(size) > options_.budget) {
    with_room(op, 0, [&] { made = engine_->allocate_unfilled(Bytes(size)); });
    note_success(op);
    return made;
  }
  swap::PinSet* const within = op.is_running ? &op.pins : nullptr;
  bool is_second_try = op.oversize != nullptr;
  with_room(op, pages_of(size), [&] {
    // What is larger than all room comes page by page, once that was found to be bearable.
    const bool exceeds = pages_of(size) > engine_->storage_pages();
    made = exceeds && std::exchange(is_second_try, true)
               ? engine_->allocate_unfilled(Bytes(size), within)
               : engine_->allocate(Bytes(size), within);
  });
  note_success(op);
  return made;
}

void* Runtime::allocate_in_rehearsal(OpContext& op, std::size_t size) {
  void* memory = nullptr;
  op.rehearse([&] {
    if (size >= options_.min_storage.count())
      memory = engine_->allocate(Bytes(size), &op.pins).address;
    else if (shared_->serves(size))
      memory = shared_->allocate(size, &op.pins, {}).address;
    else
      engine_->account_small(Bytes(size), &op.pins);
  });
  return memory != nullptr ? memory : small_block(*engine_, size);
}

void* Runtime::allocate(std::size_t size) {
  OpContext& op = context();
  SPILLWAY_ASSERT(is_of_host() || size >= options_.min_storage.count());
  if (op.rehearses) return allocate_in_rehearsal(op, size);
  const bool is_paged = size >= options_.min_storage.count();
  const bool is_learned = is_paged || (learns_shared_ && shared_->serves(size));
  // An operator becomes worth learning with the first such storage that it touches or makes.
  if (is_learned && guide_ != nullptr && op.is_running && !op.learns && !op.replays &&
      !op.is_beside) {
    learn_op(op, {}, *op.text, {.autograd = op.autograd});
    follow_orders(op);
    if (op.learns) guide_->note_begin(trainer_of(op));
  }
  const Mark start = mark_wait(op);
  swap::SwapEngine::Allocation made;
  if (is_paged) {
    made = allocate_paged(op, size);
    note_allocated(op, made.storage, size);
  } else {
    made.address = static_cast<std::byte*>(shared_->serves(size) ? allocate_shared(size, op)
                                                                 : allocate_small(size, op));
  }
  end_wait_for_room(op, made.storage, start);
  return made.address;
}

void Runtime::note_allocated(OpContext& op, StorageId storage, std::size_t size) {
  const auto pages = pages_of(size);
  if (op.fills_on_host) return;  // Not the device's, and unknown to plans.
  if (!is_of_host()) {
    if (op.is_running)
      op.born.push_back({storage, op.fills ? pages : 0, op.inside_peak});
    else
      held_->hold_until_used(storage);
  }
  if (op.is_running && op.fills) {
    op.inside.push_back(storage);
    op.inside_pages += pages;
    op.inside_peak = std::max(op.inside_peak, op.inside_pages);
    note_need(op);
  }
  if (guide_ != nullptr && !op.replays)
    guide_->allocated(trainer_of(op), storage, pages, Bytes(size),
                      op.is_running && op.fills && !op.makes_blanks);
  if (traces()) options_.trace->allocated(trainer_of(op), storage, Bytes(size));
}

/// `born`: what room was made for; none: a storage that plans do not know.
void Runtime::end_wait_for_room(OpContext& op, StorageId born, const Mark& start) {
  if (start.at == TimePoint{}) return;
  const Wait wait = waited_since(start);
  if (traces())
    options_.trace->waited(trainer_of(op), StallLedger::Reason::kRoom, wait.time, start.traced);
  if (op.replays) op.replay_wait += wait;
  if (!op.learns) return;
  if (start.moment && wait.time > Duration(0)) guide_->note_apart(trainer_of(op), *start.moment);
  guide_->waited(trainer_of(op), wait.time, wait.moved);
  if (born.is_some() && wait.time >= StallLedger::kNoticeable)
    guide_->waited_for(trainer_of(op), born, StallLedger::Reason::kRoom, wait.time);
  if (op.text != nullptr)
    stalls_.note(op.signature, *op.text, StallLedger::Reason::kRoom, wait.time);
}

Runtime::Mark Runtime::mark() const {
  return {clock_.now(), moved(), swap::SwapEngine::waited_by_this_thread()};
}

/// Where a wait may begin; at no time where there will be none that anybody asks for.
Runtime::Mark Runtime::mark_wait(const OpContext& op) const {
  if (!engine_->is_under_pressure() || !(op.learns || op.replays || traces())) return {};
  Mark start = mark();
  if (op.learns) start.moment = guide_->moment();
  if (traces()) start.traced = options_.trace->moment();
  return start;
}

/// Of the time since then what this thread waited for transfers. The rest is work: mapping the
/// pages of an allocation takes its time with or without transfers, and belongs to the operator.
Runtime::Wait Runtime::waited_since(const Mark& since) const {
  const Duration waited = swap::SwapEngine::waited_by_this_thread() - since.waited;
  if (waited == Duration(0)) return {};
  const Wait passed = passed_since(since);
  const double share = std::min(1.0, seconds(waited) / seconds(passed.time));
  return {waited, Bytes(static_cast<std::uint64_t>(share * passed.moved.count()))};
}

Runtime::Wait Runtime::passed_since(const Mark& since) const {
  const Mark now = mark();
  return {now.at - since.at, now.moved - since.moved};
}

/// What an operator waits for its inputs is shared out among those that were missing, by pages.
void Runtime::tell_values(const OpContext& op, std::span<const RangeUse> uses, Duration waited) {
  const auto sum = std::accumulate(op.missing.begin(), op.missing.end(), std::uint64_t{0});
  for (std::size_t i = 0; i < std::min(op.missing.size(), uses.size()) && sum > 0; ++i)
    if (op.missing[i] > 0)
      guide_->waited_for(trainer_of(op), uses[i].storage, StallLedger::Reason::kInputs,
                         waited * op.missing[i] / static_cast<std::int64_t>(sum));
}

void Runtime::count_other(Bytes size) {
  OpContext& op = context();
  if (op.rehearses) {
    op.rehearse([&] { engine_->account_small(size, &op.pins); });
    return;
  }
  const Mark start = mark_wait(op);
  with_room(op, 0, [&] { engine_->account_small(size, op.is_running ? &op.pins : nullptr); });
  note_success(op);
  end_wait_for_room(op, {}, start);
}

std::optional<device::Event> Runtime::moment() const {
  return options_.moment ? std::optional(options_.moment()) : std::nullopt;
}

device::Event Runtime::given_so_far() const {
  return options_.given_so_far ? options_.given_so_far() : device::Event();
}

/// What tells whose operators are learned. Several threads give a device its work, backward has one
/// of its own: they take turns. In a rank one of them gives all that repeats.
const void* Runtime::trainer_of(const OpContext& op) const {
  return is_of_host() || options_.is_of_rank ? static_cast<const void*>(&op) : this;
}

/// What an operator has made and does not hand out stays with its kernels, as workspaces do. It is
/// there beside all operators from now on, and no part of what this one needs.
void Runtime::hold_hidden(OpContext& op, std::span<const StorageId> results) noexcept {
  std::uint32_t hidden = 0;
  std::uint32_t own_peak = 0;
  for (const OpContext::Born& born : op.born) {
    if (std::find(results.begin(), results.end(), born.storage) != results.end()) continue;
    try {
      held_->hold(engine_->find(engine_->address_of(born.storage)));
    } catch (const Error& error) {
      note_refusal(error, op.name(), op.signature);  // Its kernels fail where they touch the rest.
    }
    own_peak = std::max(own_peak, born.peak_before - hidden);
    hidden += born.pages;
  }
  op.born.clear();
  if (op.refused.need > 0) note_kept_of_refused(op, hidden);
  if (op.need_name.empty()) return;
  own_peak = std::max(own_peak, op.inside_peak - hidden);
  const std::lock_guard lock(step_mutex_);
  note_need_locked(op.input_pages + own_peak, op.need_name);
}

void Runtime::deallocate(void* memory, const device::Event& until) noexcept {
  if (memory == nullptr) return;
  const RangeUse found = engine_->find(memory);
  const StorageId storage = found.storage;
  if (!storage.is_some()) {
    auto* block = static_cast<std::byte*>(memory) - kSmallHeader;
    engine_->release_small(Bytes(*reinterpret_cast<std::size_t*>(block)));
    std::free(block);
    return;
  }
  OpContext& op = context();
  if (shared_->has(storage)) {
    release_shared(op, memory, storage);
    return;
  }
  if (op.is_running) {
    const auto born = std::find(op.inside.begin(), op.inside.end(), storage);
    if (born != op.inside.end()) {
      op.inside_pages -= found.pages;
      *born = op.inside.back();
      op.inside.pop_back();
    }
    std::erase_if(op.born, [&](const auto& made) { return made.storage == storage; });
  }
  if (guide_ != nullptr) guide_->freed(storage);
  if (last_uses_->is_on()) last_uses_->freed(storage);
  // Operators that have ended have said when the device is done with what they used.
  const auto holds = is_of_host() ? HeldStorages::PinSets() : held_->take(storage);
  const bool is_used_past_those = !holds.empty() || (!is_of_host() && op.is_running);
  device::Event end = until;
  if (is_used_past_those)
    end = until.is_done() ? given_so_far() : device::all_of({until, given_so_far()});
  // What dropped tensors are made of lives on until they are back.
  const bool may_end =
      recomputer_ == nullptr || !recomputer_->is_active() || recomputer_->may_end(storage, end);
  if (may_end) return engine_->release(storage, end);
  for (const auto& held : holds) engine_->unpin(*held, nullptr, end);
}

void Runtime::announce_op() noexcept {
  OpContext& op = context();
  op.sampled_since = ++op.ops % kSampleEvery == 0 ? clock_.now() : TimePoint{};
}

/// Adds the time since `start` to what interception costs, unless it is 0.
void Runtime::sample_since(TimePoint start) noexcept {
  if (start == TimePoint{}) return;
  const Duration passed = clock_.now() - start;
  sampled_intercept_ns_.fetch_add(static_cast<std::uint64_t>(passed.count()),
                                  std::memory_order_relaxed);
}

void Runtime::begin_op(std::uint64_t signature, std::span<const RangeUse> uses, const OpText& text,
                       const OpTraits& traits, std::span<const RangeUse> shared) {
  OpContext& op = context();
  op.signature = signature;
  op.is_beside = traits.is_beside;
  try {
    settle_drops(op, uses, text, traits, shared);
  } catch (const Error& error) {
    note_refusal(error, text.describe(), signature);
    throw;
  }
  op.operands.clear();
  if (!is_of_host() || last_uses_->is_on()) op.operands.assign(uses.begin(), uses.end());
  op.to_record_writes.clear();
  if (op.wish.record_as) {
    for (const RangeUse& use : uses)
      if (use.writes) op.to_record_writes.push_back(use.storage);
  }
  op.fills = traits.fills;
  op.makes_blanks = traits.makes_blanks;
  op.autograd = traits.autograd;
  op.begin_allocations();
  for (const RangeUse& use : uses) op.input_pages += use.touched();
  op.input_pages += static_cast<std::uint32_t>(shared.size());
  for (const RangeUse& use : shared) op.shared_inputs.push_back(use.storage);
  // Where nothing ever has to leave the host, nobody asks who uses what. A device works on when the
  // operator has ended, and what is freed then may not be used for something else.
  const bool is_asked_for = !is_of_host() || engine_->is_under_pressure();
  const bool holds = is_asked_for && !(uses.empty() && shared.empty());
  if (!holds) follow_orders(op);
  sample_since(op.sampled_since);
  op.text = &text;  // Only now: the caller's text dies with whatever was thrown above.
  op.is_running = true;
  try {
    if (traces() && !traits.runs_elsewhere)
      options_.trace->begin_op(trainer_of(op), signature, text);
    note_need(op);
    if (holds) hold(op, uses, shared);
    if (traces()) options_.trace->begun(trainer_of(op));
    held_->let_go_of_used(uses);
  } catch (...) {
    end_op();
    throw;
  }
}

void Runtime::learn_op(OpContext& op, std::span<const RangeUse> uses, const OpText& text,
                       const OpTraits& traits, std::span<const RangeUse> shared) {
  const bool is_named = engine_->is_under_pressure() || options_.planning.stored != nullptr;
  const OpText* const named = is_named ? &text : nullptr;
  const auto signature =
      guide_->begin_op(trainer_of(op), op.signature, uses, traits, named, op.wish, shared);
  op.learns = op.has_orders = signature.has_value();
  if (signature && records()) options_.recording->note_op(*signature, text);
}

void Runtime::follow_orders(OpContext& op) {
  if (const swap::ResidencyOrders* const orders = op.take_orders()) engine_->apply(*orders);
}

void Runtime::note_class(StorageId storage, profile::StorageClass holds) {
  if (guide_ != nullptr) guide_->note_class(trainer_of(context()), storage, holds);
}

void Runtime::note_small_parameters(Bytes bytes) {
  if (records()) options_.recording->note_small_parameters(bytes);
}

void Runtime::pin(OpContext& op, std::span<const RangeUse> uses) {
  with_room(op, 0, [&] {
    op.missing.clear();
    engine_->pin(op.pins, uses, &op.missing, op.take_orders());
  });
}

void Runtime::hold(OpContext& op, std::span<const RangeUse> uses,
                   std::span<const RangeUse> shared) {
  Mark start = mark();
  if (op.learns && engine_->is_under_pressure()) start.moment = guide_->moment();
  if (traces() && engine_->is_under_pressure()) start.traced = options_.trace->moment();
  if (shared.empty()) {
    pin(op, uses);
  } else {
    op.all_uses.assign(uses.begin(), uses.end());
    op.all_uses.insert(op.all_uses.end(), shared.begin(), shared.end());
    pin(op, op.all_uses);
  }
  note_success(op);
  const Wait wait = waited_since(start);
  if (start.moment && wait.time > Duration(0)) guide_->note_apart(trainer_of(op), *start.moment);
  if (op.learns) guide_->note_begin(trainer_of(op));
  if (op.learns) guide_->waited(trainer_of(op), wait.time, wait.moved);
  if (op.learns && wait.time >= StallLedger::kNoticeable)
    tell_values(op, shared.empty() ? uses : std::span<const RangeUse>(op.all_uses), wait.time);
  if (traces())
    options_.trace->waited(trainer_of(op), StallLedger::Reason::kInputs, wait.time, start.traced);
  stalls_.note(op.signature, *op.text, StallLedger::Reason::kInputs, wait.time);
}

Rehearsal::Rehearsal(Runtime& runtime) : runtime_(runtime), start_(runtime.mark()) {
  Runtime::OpContext& op = runtime.context();
  op.rehearses = true;
  op.ran_out_of_room = false;
  if (op.learns) start_.moment = runtime.guide_->moment();
}

Rehearsal::~Rehearsal() {
  Runtime::OpContext& op = runtime_.context();
  op.rehearses = false;
  if (!op.learns) return;
  const void* const trainer = runtime_.trainer_of(op);
  if (start_.moment) runtime_.guide_->note_apart(trainer, *start_.moment);
  const Runtime::Wait passed = runtime_.passed_since(start_);
  runtime_.guide_->waited(trainer, passed.time, passed.moved);
}

bool Rehearsal::ran_out_of_room() const { return runtime_.context().ran_out_of_room; }

/// Called while the operator's arguments live, which its text shows. On other devices than the host
/// what it needs is known when it has ended: workspaces that stay are no part of it.
void Runtime::note_need(OpContext& op) {
  const std::uint64_t need = op.input_pages + op.inside_peak;
  if (need <= largest_need_pages_.load(std::memory_order_relaxed)) return;
  if (is_of_host()) {
    const std::lock_guard lock(step_mutex_);
    note_need_locked(need, op.name());
  } else if (op.need_name.empty()) {
    op.need_name = op.name();
  }
}

void Runtime::end_op(std::span<const StorageId> results) noexcept {
  OpContext& op = context();
  if (!op.is_running) return;  // In a child that was forked by the operator.
  hold_hidden(op, results);
  const TimePoint start = op.sampled_since == TimePoint{} ? TimePoint{} : clock_.now();
  if (traces()) options_.trace->end_op(trainer_of(op), op.learns, engine_->resident());
  op.is_running = false;
  op.text = nullptr;
  end_oversize(op);
  settle_unrecorded(op);
  if (op.learns) op.has_orders = guide_->end_op(trainer_of(op), op.wish);
  op.learns = false;
  engine_->unpin(op.pins, op.take_orders(), given_so_far());
  if (last_uses_->is_on() && !op.is_beside) {
    for (const StorageId result : results)
      op.operands.push_back(engine_->find(engine_->address_of(result)));
    last_uses_->end_op(op.signature, op.operands);
  }
  drop_wished(op);
  ops_.fetch_add(1, std::memory_order_relaxed);
  sample_since(start);
}

bool Runtime::runs_operator() {
  const auto& all = per_thread<OpContexts>().of;
  return std::any_of(all.begin(), all.end(), [](const OpContext& op) { return op.is_running; });
}

bool Runtime::has_begun_op() const noexcept { return context().is_running; }

void Runtime::step_updated() {
  std::lock_guard lock(step_mutex_);
  is_updated_ = true;
}

void Runtime::step_boundary() {
  if (!trainer_tells_steps_.load(std::memory_order_relaxed)) end_step();
}

void Runtime::begin_step() {
  if (!trainer_tells_steps_.exchange(true)) {
    // Recognised steps are counted when they have ended, told ones when they begin.
    std::lock_guard lock(step_mutex_);
    if (is_updated_) ++boundaries_;
  }
  end_step();
}

void Runtime::end_step() {
  const TimePoint now = clock_.now();
  Duration duration{0};
  std::uint64_t number = 0;  // Of the step that begins.
  std::string cost;
  {
    std::lock_guard lock(step_mutex_);
    duration = now - step_start_;
    if (boundaries_ > 0) {
      if (step_seconds_.size() < kStepsTimed) step_seconds_.push_back(0.0F);
      step_seconds_[timed_steps_++ % kStepsTimed] = static_cast<float>(seconds(duration));
    }
    ++boundaries_;
    number = boundaries_ + (trainer_tells_steps_.load() ? 0 : 1);
    is_updated_ = false;
    end_refusal_locked();
    cost = oversize_cost_locked(duration, "of this step");
    oversize_before_ = oversize_;
    step_start_ = now;
  }
  if (!cost.empty()) log_warning("{}", cost);
  if (guide_ != nullptr) guide_->step_boundary(trainer_of(context()));
  if (last_uses_->is_on()) last_uses_->begin_step();
  if (traces()) options_.trace->begin_step(trainer_of(context()), number);
  if (on_step) on_step(duration);
}

}  // namespace spillway::runtime
