// What happens when an operator needs more than the budget: it is paged through, or refused. And
// what has to stay in memory, as it leaves less of the budget to all of them.

#include <algorithm>
#include <utility>
#include <vector>

#include "held_storages.h"
#include "runtime_parts.h"
#include "shared_pages.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/log.h"
#include "spillway/base/shown_text.h"
#include "spillway/runtime/recomputing/recomputer.h"
#include "spillway/runtime/settings/budget.h"
#include "spillway/swap/swap_errors.h"

namespace spillway::runtime {

namespace {

// In pages. What small tensors leave at the least: they are what is refused then.
constexpr std::uint64_t kLeastRoom = 2;
// What an operator may move, in multiples of its need. From the half of it on its next allocation
// is refused.
constexpr std::uint64_t kMovesPerNeed = 16;
// Where a step lasts, or none is recognised, the cost is told when so many bytes were moved.
constexpr Bytes kToldWithoutStep{std::uint64_t{8} << 30};
constexpr std::uint64_t kTellAgainAt = 10;
constexpr double kDaySeconds = 86400.0;
// Disks that last for ten years are no news.
constexpr double kDaysWorthTelling = 3652.0;
constexpr Duration kLookEvery = std::chrono::milliseconds(100);
// Small tensors are told of from this share of the smallest budget on.
constexpr std::uint64_t kTellSmallFrom = 8;

/// "1.25 MiB that it is given, 8.13 MiB that it has made so far and …"; empty where that is one.
std::string parts_text(Bytes given, Bytes made, Bytes asked) {
  std::vector<std::string> parts;
  if (given > Bytes()) parts.push_back(message("{} that it is given", given));
  if (made > Bytes()) parts.push_back(message("{} that it has made so far", made));
  if (asked > Bytes()) parts.push_back(message("{} that it asks for now", asked));
  return parts.size() < 2 ? std::string() : message(" ({})", listed(parts));
}

std::string in_mebibytes(Bytes size) {
  constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
  return std::to_string((size.count() + kMebibyte - 1) / kMebibyte) + "MiB";
}

/// "below 4.00 KiB"
std::string sizes_that_stay(const RuntimeOptions& options, Bytes page_size) {
  if (options.number > 0 || options.min_storage <= SharedPages::kSmallest)
    return message("below --min-storage ({})", options.min_storage);
  const std::string small = message("below {}", SharedPages::kSmallest);
  if (options.min_storage <= page_size) return small;
  return message("{} or from {} to --min-storage ({})", small, page_size, options.min_storage);
}

/// "the budget of 12.0 MiB", "the budget of 12.0 MiB of cuda:0"
std::string budget_text(const RuntimeOptions& options) {
  const std::string budget = message("the budget of {}", options.budget);
  if (options.number == 0) return budget;
  const auto index = static_cast<std::uint16_t>(options.number - 1);
  return message("{} of {}", budget, device::DeviceId{device::DeviceKind::kCuda, index});
}

}  // namespace

Bytes Runtime::moved() const { return options_.moved ? options_.moved() : Bytes(); }

/// Pages that the operator has to have at once, as far as it has come. Where nothing was under
/// pressure when it began, its inputs are not held.
std::uint64_t Runtime::need_of(const OpContext& op, const swap::NoRoomError& error,
                               std::uint64_t asked) {
  const std::uint64_t refused = (error.wanted + error.held) / page_size_;
  if (!op.is_running) return refused;
  return std::max<std::uint64_t>(refused, op.input_pages + op.inside_pages + asked);
}

/// Lets the operator run although it does not fit: right, but slow. Refuses it where that would
/// not end, or is not possible: nobody sees what a device touches.
void Runtime::page_through(OpContext& op, std::uint64_t need) {
  const std::uint64_t room = engine_->storage_pages();
  // More than that would move its tensors over and over again: it is refused at once, while that
  // can still be an exception.
  if (!is_of_host() || op.oversize != nullptr || room <= kLeastRoom ||
      need > kReachOfOversize * room || !oversize_limit_text().empty())
    refuse_oversize(op, need);
  const std::string name = op.name();
  const Bytes may_move = std::max(options_.moves_of_oversize, page_size_ * need * kMovesPerNeed);
  bool is_news = false;
  std::string left;
  std::string smallest;
  const swap::SwapStatistics memory = engine_->statistics();
  {
    std::lock_guard lock(step_mutex_);
    const Bytes limit = options_.oversize_limit.value_or(oversize_.moved + may_move);
    if (limit - oversize_.moved < may_move)
      left =
          message(" Of what such operators may move in a run (--oversize-limit), {} are left; this "
                  "one may exceed them.",
                  limit - oversize_.moved);
    note_need_locked(need, name);
    is_news = !std::exchange(is_told_.at(static_cast<std::size_t>(RefusalCause::kBudget)), true);
    smallest = smallest_budget_text_locked(memory, Finding::kSoFar);
  }
  const std::string told =
      message("{} {}, and may move {} for that; the run goes on.{} {}",
              why_refused(op, need, Bytes()), kPagesThrough, may_move, left, smallest);
  is_news ? log_warning("{}", told) : log_info("{}", told);
  if (!op.is_running) return;
  engine_->page_through(op.pins);
  op.oversize = std::make_unique<Oversize>(Oversize{moved(), memory.spilled, may_move});
  const auto look = [this, name, before = op.oversize->moved_before, may_move] {
    const Bytes moved_since = moved() - before;
    if (moved_since <= may_move) return Ring::kAgain;
    end_endless_op(name, moved_since);
    return Ring::kOnce;
  };
  op.oversize->alarm = std::make_unique<Alarm>(kLookEvery, look);
}

/// An operator that is paged through asks for more.
void Runtime::check_oversize(OpContext& op, std::uint64_t asked) {
  if (op.oversize == nullptr) return;
  const std::uint64_t need = op.input_pages + op.inside_pages + asked;
  const Bytes moved_since = moved() - op.oversize->moved_before;
  if (need > kReachOfOversize * engine_->storage_pages() || moved_since > op.oversize->may_move / 2)
    refuse_oversize(op, need);
}

/// "aten::mm(…) does not fit into the budget of 12.0 MiB: it needs 14.0 MiB at once."
std::string Runtime::why_refused(const OpContext& op, std::uint64_t need, Bytes moved) const {
  const Bytes room = page_size_ * engine_->storage_pages();
  const Bytes small = options_.budget - std::min(options_.budget, room);
  const Bytes needed = page_size_ * need;
  const std::string so_far = moved > Bytes() ? message(", and has moved {} so far", moved) : "";
  if (small > needed)  // The operator is not what holds the memory.
    return message("Tensors {} hold {} of {} and never leave memory; {} finds no room beside "
                   "them{}.",
                   sizes_that_stay(options_, page_size_), small, budget_text(options_), op.name(),
                   so_far);
  std::string parts;
  if (op.is_running) {
    const std::uint64_t made = std::min<std::uint64_t>(op.inside_pages, need - op.input_pages);
    parts = parts_text(page_size_ * op.input_pages, page_size_ * made,
                       page_size_ * (need - op.input_pages - made));
  }
  std::string beside;
  if (small > Bytes())
    beside = message(" beside {} of tensors {}, which never leave memory", small,
                     sizes_that_stay(options_, page_size_));
  if (const Bytes kept = page_size_ * held_->pages(); kept > Bytes())
    beside += message("{} {} that kernels keep", beside.empty() ? " beside" : ", and", kept);
  return message("{} does not fit into {}: it needs {} at once{}{}{}.", op.name(),
                 budget_text(options_), needed, parts, beside, so_far);
}

void Runtime::refuse_oversize(OpContext& op, std::uint64_t need) {
  const Bytes moved_since = op.oversize == nullptr ? Bytes() : moved() - op.oversize->moved_before;
  op.oversize.reset();  // Before the mutex is taken: its alarm may want that.
  const std::string why = why_refused(op, need, moved_since) + oversize_limit_text();
  const swap::SwapStatistics memory = engine_->statistics();
  std::string told;
  {
    // Not held by the exception: nobody may catch it, and the summary needs the mutex.
    std::lock_guard lock(step_mutex_);
    if (op.is_running && op.refused.need == 0)
      op.refused = {need, largest_need_pages_.load(), largest_op_};
    op.refused.need = std::max(op.refused.need, need);
    note_need_locked(need, op.name());
    is_largest_op_cut_ |= need == largest_need_pages_.load();
    told = message("{} {}", why, smallest_budget_text_locked(memory, Finding::kSoFar));
    refuse_locked({RefusalCause::kBudget, told}, op.place());
  }
  log_error("{}", told);
  throw BudgetError("Spillway: {}", told);
}

void Runtime::hold_until_freed(StorageId storage) {
  const RangeUse whole = engine_->find(engine_->address_of(storage));
  const OpContext& op = context();
  // From now on it may be written at any time, and nobody tells of that.
  if (!op.is_running)
    before_write(whole);
  else if (recomputer_ != nullptr && recomputer_->is_active())
    recomputer_->note_unrecorded_writes({&storage, 1});
  // An operator has there what its kernels use, and all of it may be more than there is room for.
  bool is_operand = false;
  for (const RangeUse& part : op.operands) {
    if (!op.is_running || part.storage != storage) continue;
    held_->hold(part);
    is_operand = true;
  }
  if (is_operand) return;
  try {
    held_->hold(whole);
  } catch (const swap::NoRoomError&) {
    throw BudgetError(
        "Spillway: {} of a tensor that has to stay in memory until it is freed, since "
        "kernels past the operators go by its pointer, find no room in {} beside {} "
        "that stay already: allow more with --budget, or free such tensors earlier",
        page_size_ * whole.pages, budget_text(options_), page_size_ * held_->pages());
  }
}

/// A workspace that a refused operator had made stays, and counts among what is kept from now on:
/// counted in the operator, too, the smallest budget would have it twice.
void Runtime::note_kept_of_refused(OpContext& op, std::uint64_t kept) noexcept {
  const std::lock_guard lock(step_mutex_);
  if (kept == 0 || largest_need_pages_.load() != op.refused.need) return;
  const std::uint64_t own = op.refused.need - std::min(op.refused.need, kept);
  largest_need_pages_.store(std::max(own, op.refused.before));
  if (own < op.refused.before) largest_op_ = std::move(op.refused.name_before);
}

/// What the largest operator so far needs, with all that is too small to leave or held until it is
/// freed, and a page to spare.
Bytes Runtime::smallest_budget_locked(const swap::SwapStatistics& memory) const {
  return page_size_ * (largest_need_pages_.load() + held_->most_pages() + 1) + memory.small_peak;
}

std::string Runtime::smallest_budget_text_locked(const swap::SwapStatistics& memory,
                                                 Finding found) const {
  const Bytes smallest = smallest_budget_locked(memory);
  std::string held;
  if (memory.small_peak * 2 < smallest) held = "needed at once by " + largest_op_;
  if (memory.small_peak * kTellSmallFrom >= smallest)
    held += message("{}{} of it for tensors {}, which never leave memory", held.empty() ? "" : "; ",
                    in_mebibytes(memory.small_peak), sizes_that_stay(options_, page_size_));
  if (held_->most_pages() > 0)
    held += message("{}{} of it for memory that kernels keep", held.empty() ? "" : "; ",
                    page_size_ * held_->most_pages());
  if (found == Finding::kWhole)
    return message("smallest budget: {} ({})", in_mebibytes(smallest), held);
  return message("smallest budget: {} or more ({}{})", in_mebibytes(smallest), held,
                 is_in_first_step_locked() ? "; the first step has not ended" : "");
}

void Runtime::end_endless_op(const std::string& name, Bytes moved) {
  const swap::SwapStatistics memory = engine_->statistics();
  std::string told;
  {
    std::lock_guard lock(step_mutex_);
    told =
        message("{} needs more than the budget of {}, has moved {} and is not done. It cannot "
                "be interrupted, so the process is asked to end (SIGTERM). {}",
                name, options_.budget, moved, smallest_budget_text_locked(memory, Finding::kSoFar));
    refuse_locked({RefusalCause::kBudget, told}, 0);
  }
  log_error("{}", told);
  if (on_endless_op) on_endless_op();
}

/// The operator has ended, or what it threw leaves it.
void Runtime::end_oversize(OpContext& op) noexcept {
  if (op.oversize == nullptr) return;
  const Bytes moved_since = moved() - op.oversize->moved_before;
  const Bytes written_since = engine_->statistics().spilled - op.oversize->written_before;
  op.oversize.reset();
  std::string told;
  {
    std::lock_guard lock(step_mutex_);
    ++oversize_.ops;
    oversize_.moved += moved_since;
    oversize_.written += written_since;
    // At the end of a step this is told earlier.
    if (oversize_.moved >= std::max(tell_oversize_from_, kToldWithoutStep))
      told = oversize_cost_locked(clock_.now() - step_start_, "so far in this step");
  }
  if (!told.empty()) log_warning("{}", told);
}

/// Empty until they have moved what they may.
std::string Runtime::oversize_limit_text() const {
  std::lock_guard lock(step_mutex_);
  if (!options_.oversize_limit || oversize_.moved < *options_.oversize_limit) return {};
  return message(" Such operators have moved {}, and may move {} in a run (--oversize-limit).",
                 oversize_.moved, *options_.oversize_limit);
}

/// What operators larger than the budget have cost since the step began: after the first step with
/// one, and whenever they have moved ten times as many bytes as when it was told last.
std::string Runtime::oversize_cost_locked(Duration passed, std::string_view what) {
  const OversizeCounts& before = oversize_before_;
  const Bytes moved = oversize_.moved - before.moved;
  const double time = seconds(passed);
  if (moved == Bytes() || time <= 0.0 || oversize_.moved < tell_oversize_from_) return {};
  tell_oversize_from_ = oversize_.moved * kTellAgainAt;
  const auto per_second = [&](Bytes bytes) {
    return Bytes(static_cast<std::uint64_t>(static_cast<double>(bytes.count()) / time));
  };
  const Bytes written = per_second(oversize_.written - before.written);
  std::string worn;
  const double days = static_cast<double>(options_.endurance.count()) /
                      static_cast<double>(written.count()) / kDaySeconds;
  if (options_.endurance > Bytes() && days < kDaysWorthTelling)
    worn = message(", at which disks rated for {} of writes (--endurance) last {}",
                   options_.endurance, days_text(days));
  return message("{} {} needed more than the budget of {} and moved {} in {}: {} a second, {} a "
                 "second of that written{}. --oversize-limit limits what they may move in a run.",
                 counted(oversize_.ops - before.ops, "operator"), what, options_.budget, moved,
                 seconds_text(time), per_second(moved), written, worn);
}

void Runtime::finish(Ending ending) {
  const swap::SwapStatistics memory = engine_->statistics();
  std::lock_guard lock(step_mutex_);
  has_ended_by_itself_ = ending == Ending::kByItself;
  if (oversize_.ops == 0 || refusal_.cause != RefusalCause::kNone) return;
  const bool is_whole = ending == Ending::kByItself && !is_largest_op_cut_;
  const auto finding = is_whole ? Finding::kWhole : Finding::kSoFar;
  refusal_ = {RefusalCause::kBudget,
              message("{} needed more than the budget of {} and came through, slowly, with right "
                      "results; {} moved meanwhile. {}",
                      counted(oversize_.ops, "operator"), options_.budget, oversize_.moved,
                      smallest_budget_text_locked(memory, finding))};
  log_warning("{}", refusal_.text);
}

}  // namespace spillway::runtime
