// How the runtime has operators recorded, drops what they made, and runs them again.

#include <string_view>
#include <utility>

#include "runtime_parts.h"
#include "spillway/base/assert.h"
#include "spillway/base/log.h"
#include "spillway/runtime/recomputing/recomputer.h"
#include "spillway/runtime/recording/step_trace_recorder.h"
#include "spillway/runtime/runtime.h"

namespace spillway::runtime {

namespace {

// A refusal of it ends with the step: no later success is one of the same.
constexpr const char* kPastOperators = "a write past all operators";
constexpr std::uint64_t kNoOperator = ~std::uint64_t{0};

/// An operator that runs again, for errors.
class ReplayText final : public OpText {
 public:
  explicit ReplayText(const recompute::RecordedCall& call) : call_(call) {}
  std::string describe() const override { return message("another run of {}", call_.name()); }

 private:
  const recompute::RecordedCall& call_;
};

/// Whether it tells of the budget, of addresses, or of the store, and not of the operator that has
/// thrown it.
bool is_about_room(const Error& error) {
  return dynamic_cast<const BudgetError*>(&error) != nullptr ||
         dynamic_cast<const IoError*>(&error) != nullptr ||
         dynamic_cast<const swap::AddressesError*>(&error) != nullptr;
}

/// Without what LibTorch adds behind the first line: where in its sources that was.
std::string first_line(const char* text) {
  const std::string_view all(text);
  return std::string(all.substr(0, all.find('\n')));
}

}  // namespace

/// Brings back what the plan or the operator wants, and has the operator learned in between.
void Runtime::settle_drops(OpContext& op, std::span<const RangeUse> uses, const OpText& text,
                           const OpTraits& traits, std::span<const RangeUse> shared) {
  const bool has_records = recomputer_ != nullptr && recomputer_->is_active();
  if (has_records)
    bring_back(op, op.signature, traits.is_beside ? std::span<const RangeUse>() : uses);
  op.wish.record_as.reset();
  if (records() && options_.recording->is_complete() && on_recorded) on_recorded();
  const std::span<const RangeUse> learned = learns_shared_ ? shared : std::span<const RangeUse>();
  if (guide_ != nullptr && !traits.is_beside && !(uses.empty() && learned.empty()))
    learn_op(op, uses, text, traits, learned);
  // What comes back now needs the room that the plan leaves from here on.
  if (has_records) follow_orders(op);
  if (has_records && op.wish.forgets) recomputer_->end_step();
  op.wish.forgets = false;  // Only now: where that throws, it is still to be done.
  if (has_records) recomputer_->before_op(uses, op.wish.record_as.has_value());
}

/// Does what the plan wants before an operator of the trainer begins: runs operators again, and
/// gives back what was freed and only lived on for them.
void Runtime::bring_back(OpContext& op, std::uint64_t signature, std::span<const RangeUse> uses) {
  const Mark start = mark();
  for (const auto& [storage, until] : recomputer_->take_ended()) engine_->release(storage, until);
  if (guide_ == nullptr || uses.empty()) return;
  const StepGuide::DueReplays due = guide_->due_replays(trainer_of(op), signature, uses);
  if (due.places.empty()) return;
  Mark begin;
  recomputer_->replay(due.places, [&](std::size_t position, bool ends) {
    if (!ends) {
      guide_->begin_replay(due, position);
      op.replay_wait = {};
      op.has_replayed = false;
      begin = mark();
      return;
    }
    const Mark end = mark();
    const Duration took = end.at - begin.at - op.replay_wait.time;
    const Bytes moved = end.moved - begin.moved - op.replay_wait.moved;
    guide_->end_replay(due, position, op.has_replayed ? took : Duration(0), moved, op.wish);
    drop_wished(op);
  });
  // Their own time is known to plans as that of second runs.
  const Wait passed = passed_since(start);
  guide_->waited(trainer_of(op), passed.time, passed.moved);
}

void Runtime::drop_wished(OpContext& op) noexcept {
  for (const StorageId storage : op.wish.drops) recomputer_->drop(storage);
  op.wish.drops.clear();
}

/// Runs something as an operator that is none of the trainer's.
void Runtime::run_replay(profile::OpIndex place, const recompute::RecordedCall& call,
                         std::span<const RangeUse> uses, const ReplayBody& body) {
  const ReplayText text(call);
  OpContext& op = context();
  if (traces()) options_.trace->begin_replay(trainer_of(op), place);
  const bool was_running = std::exchange(op.is_running, true);
  const bool learned = std::exchange(op.learns, false);
  SPILLWAY_ASSERT(!was_running);
  const std::optional<device::Event> before = guide_->moment();
  op.replays = true;
  op.fills = true;
  op.room_failure = nullptr;
  op.text = &text;
  op.begin_allocations();
  std::vector<StorageId> kept;
  const auto end = [&] {
    hold_hidden(op, kept);
    if (traces()) options_.trace->end_op(trainer_of(op), false, engine_->resident());
    op.is_running = op.replays = false;
    op.learns = learned;
    op.text = nullptr;
    end_oversize(op);
    engine_->unpin(op.pins, nullptr, given_so_far());
    if (before) guide_->note_apart(trainer_of(op), *before);
  };
  try {
    Mark asked = mark();
    if (traces()) asked.traced = options_.trace->moment();
    pin(op, uses);
    const Wait wait = waited_since(asked);
    if (traces()) {
      options_.trace->waited(trainer_of(op), StallLedger::Reason::kInputs, wait.time, asked.traced);
      options_.trace->begun(trainer_of(op));
    }
    const TimePoint start = clock_.now();
    op.replay_wait += wait;
    op.has_replayed = true;
    if (options_.before_replay) options_.before_replay();
    body.compute();
    if (options_.after_replay) options_.after_replay();  // Before anybody can see what was made.
    kept = body.take(op.pins);
    replay_ns_.fetch_add(static_cast<std::uint64_t>((clock_.now() - start).count()),
                         std::memory_order_relaxed);
  } catch (const swap::NoRoomError& error) {
    end();
    throw BudgetError("{} to bring a tensor back: {} (allow more with --budget, or run with "
                      "--recompute off)",
                      text.describe(), error.what());
  } catch (const Error& error) {
    end();
    if (is_about_room(error)) throw;
    throw RecomputeError("{} failed: {}", text.describe(), error.what());
  } catch (const std::exception& error) {
    end();
    // The adapter has told its library in words of that.
    if (op.room_failure != nullptr) std::rethrow_exception(op.room_failure);
    throw RecomputeError("{} failed: {}", text.describe(), first_line(error.what()));
  } catch (...) {
    end();
    throw;
  }
  end();
}

void Runtime::before_fork() noexcept {
  try {
    if (recomputer_ != nullptr && engine_->is_inherited()) {
      const std::string failure = recomputer_->begin_fork(!context().is_running);
      if (!failure.empty())
        log_error("{}. The process goes on, but a forked child ends where it touches one of them: "
                  "run with --recompute off",
                  failure);
    }
  } catch (const std::exception& error) {
    log_error("before a fork: {}", error.what());
  }
  engine_->before_fork();
}

void Runtime::after_fork_in_parent() noexcept {
  engine_->after_fork_in_parent();
  if (recomputer_ != nullptr && engine_->is_inherited()) recomputer_->end_fork();
}

void Runtime::after_fork_in_child() noexcept {
  OpContext& op = context();
  op.is_running = op.learns = false;
  op.wish = {};
  // Not destroyed: the thread that this would wait for is the parent's.
  static_cast<void>(op.oversize.release());
  engine_->after_fork_in_child();
}

/// An operator that was to be recorded was not, also because its kernel threw.
void Runtime::settle_unrecorded(OpContext& op) {
  if (!std::exchange(op.wish.record_as, std::nullopt)) return;
  recomputer_->note_unrecorded_writes(op.to_record_writes);
}

bool Runtime::wants_record() const noexcept { return context().wish.record_as.has_value(); }

void Runtime::keep(std::optional<recompute::RecordedCall> call) {
  OpContext& op = context();
  if (!op.wish.record_as) return;
  if (call) {
    const profile::OpIndex place = *std::exchange(op.wish.record_as, std::nullopt);
    if (traces()) options_.trace->kept_op(trainer_of(op), place);
    recomputer_->keep(place, *std::move(call));
  } else {
    guide_->cannot_record(trainer_of(op));
    settle_unrecorded(op);
  }
}

void Runtime::before_write(const RangeUse& use) {
  if (recomputer_ == nullptr || !recomputer_->is_active()) return;
  RangeUse written = use;
  written.writes = true;
  // It is written all the same: another run would find other bytes.
  const auto note_write = [&] { recomputer_->note_unrecorded_writes({&written.storage, 1}); };
  try {
    recomputer_->before_op({&written, 1}, false);
    engine_->unguard(use.storage);  // What a guard is for has been done.
  } catch (const Error& error) {
    note_write();
    note_refusal(error, kPastOperators, kNoOperator);
    throw;
  } catch (...) {
    note_write();
    throw;
  }
}

/// Of an operator that runs again.
}  // namespace spillway::runtime
