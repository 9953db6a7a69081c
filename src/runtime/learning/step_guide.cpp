#include "spillway/runtime/learning/step_guide.h"

#include <algorithm>
#include <thread>

namespace spillway::runtime {

namespace {

// So many freed storages wait for the thread that trains; then whoever frees tells of them, unless
// a plan is being made.
constexpr std::size_t kPatientFrees = 1024;

/// A profile is the same under all budgets, so nothing is cut up in it; nor is what a plan that was
/// made from one can have there as a whole.
std::optional<std::uint32_t> large_pages(const StepLearner::Options& options) {
  if (options.recording != nullptr) return ~0U;
  if (options.planning.stored != nullptr) return options.budget_pages;
  return std::nullopt;
}

}  // namespace

StepGuide::StepGuide(const StepLearner::Options& options, swap::ResidencyAdvice& residency,
                     const Clock& clock)
    : most_pages_(options.recording == nullptr ? options.budget_pages : ~0U),
      residency_(residency),
      room_(options.room),
      moment_(options.moment),
      clock_(clock),
      pieces_(options.budget_pages, large_pages(options)),
      learner_(with_storages(options)) {}

StepLearner::Options StepGuide::with_storages(StepLearner::Options options) const {
  options.storage_of = [this](PieceId piece) {
    return pieces_.is_whole(piece) ? pieces_.part_of(piece).storage : StorageId();
  };
  return options;
}

/// Into `uses_`. True when they are all whole storages.
bool StepGuide::translate_locked(std::span<const RangeUse> uses) {
  ended_.clear();
  pieces_.translate(uses, uses_, ended_);
  for (const PieceId piece : ended_) learner_.freed(piece);
  return std::all_of(uses_.begin(), uses_.end(),
                     [this](const PieceUse& use) { return pieces_.is_whole(use.piece); });
}

std::optional<std::uint64_t> StepGuide::begin_op(Thread thread, std::uint64_t signature,
                                                 std::span<const RangeUse> uses,
                                                 const OpTraits& traits, const OpText* text,
                                                 Wish& wish, std::span<const RangeUse> shared) {
  Thread nobody = nullptr;
  thread_.compare_exchange_strong(nobody, thread);
  if (!trains(thread)) return std::nullopt;
  std::lock_guard lock(learner_mutex_);
  if (is_boundary_.exchange(false)) learner_.step_boundary();
  tell_freed_locked();
  advice_.clear();
  const bool is_simple = translate_locked(uses);
  shared_.clear();
  for (const RangeUse& use : shared) shared_.push_back({pieces_.whole(use.storage), 1, use.writes});
  learner_.note_room(room_ ? room_() : residency_.storage_pages());
  learner_.begin_op(signature, uses_, clock_.now(), advice_, traits.is_replayable && is_simple,
                    traits.autograd, shared_);
  steps_.store(learner_.steps(), std::memory_order_relaxed);
  follows_plan_.store(learner_.follows_plan(), std::memory_order_relaxed);
  measures_.store(learner_.measures(), std::memory_order_relaxed);
  if (text != nullptr) learner_.name_op(*text);
  take_advice_locked(wish.orders);
  take_wishes_locked(wish);
  return learner_.signature();
}

bool StepGuide::end_op(Thread thread, Wish& wish) {
  if (!trains(thread)) return false;
  std::lock_guard lock(learner_mutex_);
  tell_freed_locked();
  advice_.clear();
  learner_.end_op(advice_);
  take_advice_locked(wish.orders);
  take_wishes_locked(wish);
  return true;
}

StepGuide::DueReplays StepGuide::due_replays(Thread thread, std::uint64_t signature,
                                             std::span<const RangeUse> uses) {
  if (!trains(thread) || is_boundary_.load()) return {};
  std::lock_guard lock(learner_mutex_);
  if (!learner_.may_be_due()) return {};  // Mostly, and the uses need no translation for that.
  tell_freed_locked();
  translate_locked(uses);
  const auto due = learner_.due_replays(signature, uses_);
  return {{due.begin(), due.end()}, thread, learner_.seen_ops()};
}

bool StepGuide::holds_locked(const DueReplays& due) const {
  return trains(due.thread) && learner_.seen_ops() == due.seen_ops;
}

void StepGuide::begin_replay(const DueReplays& due, std::size_t position) {
  std::lock_guard lock(learner_mutex_);
  if (!holds_locked(due)) return;
  advice_.clear();
  learner_.begin_replay(position, advice_);
  take_advice_locked(replay_orders_);
  residency_.apply(replay_orders_);
}

void StepGuide::end_replay(const DueReplays& due, std::size_t position, Duration took, Bytes moved,
                           Wish& wish) {
  std::lock_guard lock(learner_mutex_);
  if (!holds_locked(due)) return;
  advice_.clear();
  learner_.end_replay(position, took, moved, advice_);
  take_advice_locked(replay_orders_);
  residency_.apply(replay_orders_);
  take_wishes_locked(wish);
}

void StepGuide::cannot_record(Thread thread) {
  if (!trains(thread)) return;  // Its operator is no longer the learner's latest.
  std::lock_guard lock(learner_mutex_);
  learner_.cannot_record();
}

void StepGuide::allocated(Thread thread, StorageId storage, std::uint32_t pages, Bytes bytes,
                          bool is_filled) {
  if (!trains(thread) || pages > most_pages_) return;
  std::lock_guard lock(learner_mutex_);
  tell_freed_locked();
  learner_.allocated(pieces_.whole(storage), pages, bytes, is_filled);
}

void StepGuide::allocated_shared(Thread thread, StorageId page) {
  if (!trains(thread)) return;
  std::lock_guard lock(learner_mutex_);
  tell_freed_locked();
  learner_.allocated_shared(pieces_.whole(page));
}

void StepGuide::use_shared(Thread thread, StorageId page) {
  if (!trains(thread)) return;
  std::lock_guard lock(learner_mutex_);
  learner_.use_shared(pieces_.whole(page));
}

void StepGuide::note_class(Thread thread, StorageId storage, profile::StorageClass holds) {
  if (!trains(thread)) return;
  std::lock_guard lock(learner_mutex_);
  tell_freed_locked();
  learner_.note_class(pieces_.whole(storage), holds);
}

void StepGuide::freed(StorageId storage) {
  {
    std::lock_guard lock(freed_mutex_);
    freed_.push_back(storage);
    if (freed_.size() < kPatientFrees) return;
  }
  const std::unique_lock lock(learner_mutex_, std::try_to_lock);
  if (lock.owns_lock()) tell_freed_locked();
}

void StepGuide::waited(Thread thread, Duration time, Bytes moved) {
  if (!trains(thread)) return;
  std::lock_guard lock(learner_mutex_);
  learner_.waited(time, moved);
}

void StepGuide::waited_for(Thread thread, StorageId storage, StallLedger::Reason reason,
                           Duration time) {
  if (!trains(thread)) return;
  std::lock_guard lock(learner_mutex_);
  learner_.waited_for(pieces_.whole(storage), reason, time);
}

std::optional<device::Event> StepGuide::moment() const {
  if (!measures_.load(std::memory_order_relaxed)) return std::nullopt;
  return moment_();
}

void StepGuide::note_begin(Thread thread) {
  if (!measures_.load(std::memory_order_relaxed) || !trains(thread)) return;
  std::lock_guard lock(learner_mutex_);
  learner_.note_begin();
  measures_.store(learner_.measures(), std::memory_order_relaxed);
}

void StepGuide::note_apart(Thread thread, const device::Event& from) {
  if (!trains(thread)) return;
  std::lock_guard lock(learner_mutex_);
  learner_.note_apart(from);
}

void StepGuide::step_boundary(Thread thread) {
  thread_.store(thread);
  is_boundary_.store(true);
}

void StepGuide::sleep(Duration time) { std::this_thread::sleep_for(time); }

std::optional<LearnerReport> StepGuide::report(Duration patience,
                                               const std::function<void(Duration)>& pause) const {
  // Asked again and again: the thread sanitizer does not know timed mutexes.
  constexpr Duration kPause = std::chrono::milliseconds(1);
  std::unique_lock lock(learner_mutex_, std::try_to_lock);
  for (Duration left = patience; !lock.owns_lock() && left > Duration(0); left -= kPause) {
    pause(kPause);
    static_cast<void>(lock.try_lock());
  }
  if (!lock.owns_lock()) return std::nullopt;
  return learner_.report();
}

void StepGuide::tell_freed_locked() {
  {
    std::lock_guard lock(freed_mutex_);
    telling_.swap(freed_);
  }
  for (const StorageId storage : telling_) {
    ended_.clear();
    pieces_.freed(storage, ended_);
    for (const PieceId piece : ended_) learner_.freed(piece);
  }
  telling_.clear();
}

/// Advice names pieces, orders parts of storages.
void StepGuide::take_advice_locked(swap::ResidencyOrders& orders) {
  orders.clear();
  orders.now = learner_.clock();
  for (const auto& next : advice_.next_uses)
    orders.next_uses.push_back({pieces_.part_of(next.piece), next.at});
  for (const auto& out : advice_.write_outs)
    orders.write_outs.push_back({pieces_.part_of(out.piece), out.pages, out.far_pages});
  orders.reserve_pages = advice_.reserve_pages;
  for (const auto& fetch : advice_.fetches)
    orders.fetches.push_back({pieces_.part_of(fetch.piece), fetch.keeps_copy
                                                                ? swap::OnFetch::kKeepStoreCopy
                                                                : swap::OnFetch::kDropStoreCopy});
}

void StepGuide::take_wishes_locked(Wish& wish) {
  wish.forgets |= advice_.forgets;
  wish.record_as = advice_.record_as;
  for (const PieceId drop : advice_.drops)
    if (pieces_.is_whole(drop)) wish.drops.push_back(pieces_.part_of(drop).storage);
}

}  // namespace spillway::runtime
