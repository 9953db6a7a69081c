#include "transfer_schedule.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::kSurvives;

namespace {

/// Moments count operators on from the period in which the interval began.
struct Entry {
  const Interval* interval = nullptr;
  std::uint32_t pages = 0;
  std::uint64_t leave = 0;   ///< The write-out starts when this operator has finished.
  std::uint64_t needed = 0;  ///< The first operator for which it may not be out.
  std::uint64_t fetch = 0;
  bool is_needed = true;  ///< False: a late write-out that is never due.
  std::uint32_t far_pages = 0;
};

struct Deadline {
  std::uint64_t op = 0;  ///< The transfer ends before this operator begins.
  double duration = 0.0;
  std::uint32_t entry = 0;
  double lead_seconds = 0.0;  ///< Result: how long before its deadline it starts.
};

/// What leaves is chosen; this finds when. Moments count operators through several steps, from the
/// one in which an interval begins: leave < fetch <= needed, although the fetch may be in the next
/// step. `choice_.levels` says all the time what would be resident at each operator by the moments
/// that are set so far:
///
///     as chosen          everything away from its last use to its next one
///     late write-outs    back in until the room is due         (delay_write_outs)
///     fetches            back in from their start on           (place_fetches)
///
/// The level with everything away is the lowest there is, so each of these looks whether its pages
/// find room where it puts them.
class Scheduler {
 public:
  Scheduler(const StepTape& tape, const TouchIntervals& touches, EvictionChoice choice,
            const std::vector<double>& begins, const SwapLimits& limits, TransferStyle style,
            SwapPlan& plan)
      : tape_(tape),
        touches_(touches),
        choice_(std::move(choice)),
        begins_(begins),
        limits_(limits),
        style_(style),
        plan_(plan),
        op_count_(tape.ops.size()) {}

  void schedule() {
    std::vector<std::uint32_t> far(choice_.pages.size(), 0);
    if (limits_.far)
      far = choose_far_pages(tape_, touches_, choice_.pages, begins_, limits_, style_.tiers,
                             choice_.wishes);
    for (std::uint32_t i = 0; i < touches_.intervals.size(); ++i) {
      const Interval& interval = touches_.intervals[i];
      if (choice_.pages[i] == 0) continue;
      const std::uint64_t needed = std::uint64_t{interval.begin} + 1 + interval.covered_ops;
      entries_.push_back(
          {&interval, choice_.pages[i], interval.begin, needed, kNoOp, true, far[i]});
    }
    // Before fetches are placed: they need to know what is still in.
    if (style_.write_outs == WriteOutMoment::kLate) delay_write_outs();
    place_fetches();
    emit();
  }

 private:
  double begin_of(std::uint64_t op) const {
    const std::uint64_t step = op / op_count_;
    return begins_[op % op_count_] + static_cast<double>(step) * begins_[op_count_];
  }

  static double duration(std::uint32_t pages, double page_seconds, double fixed_seconds) {
    return pages * page_seconds + fixed_seconds;
  }
  static double write_seconds(const TransferRates& rates, double page_bytes, std::uint32_t pages) {
    return duration(pages, rates.write.seconds_for(page_bytes), rates.write_fixed_seconds);
  }
  static double read_seconds(const TransferRates& rates, double page_bytes, std::uint32_t pages) {
    return duration(pages, rates.read.seconds_for(page_bytes), rates.read_fixed_seconds);
  }
  double page_bytes() const { return static_cast<double>(limits_.page_size.count()); }

  /// Latest starts of transfers that share one resource, going back around the step. The second
  /// round counts; the first one tells it how busy the resource is at the end of the step.
  void find_leads(std::vector<Deadline>& deadlines) const {
    std::stable_sort(deadlines.begin(), deadlines.end(), [&](const auto& a, const auto& b) {
      // One step stands for all: what ends in a later one uses the resource at the same time of its
      // own.
      return a.op % op_count_ > b.op % op_count_;
    });
    // Backwards in time: a transfer ends before its deadline and before the one behind it begins.
    double limit = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 2; ++round) {
      for (Deadline& deadline : deadlines) {
        const double due = begins_[deadline.op % op_count_];
        limit = std::min(due, limit) - deadline.duration;
        // Earlier than the last moment, because transfers run at a part of their rate while the
        // other direction is busy, and operators are not as punctual as the tape.
        deadline.lead_seconds = due - limit + style_.lead_durations * deadline.duration;
      }
      limit += begins_[op_count_];
    }
  }

  /// The same by tiers, each with its own resources; the far pages of a value come first. The
  /// durations of the deadlines are left out of account.
  template <typename Seconds>
  void find_leads(std::vector<Deadline>& deadlines, Seconds seconds_of) const {
    const TransferRates& near = limits_.rates;
    for (Deadline& each : deadlines)
      each.duration = seconds_of(near, page_bytes(), near_pages(entries_[each.entry]));
    find_leads(deadlines);
    if (!limits_.far) return;
    const TransferRates behind = rates_behind(near, limits_.far->rates);
    std::vector<Deadline> far = deadlines;
    for (Deadline& each : far)
      each.duration = seconds_of(behind, page_bytes(), entries_[each.entry].far_pages);
    find_leads(far);
    // Sorted alike.
    for (std::size_t i = 0; i < far.size(); ++i) {
      const bool has_far = entries_[far[i].entry].far_pages > 0;
      const bool has_near = near_pages(entries_[far[i].entry]) > 0;
      if (!has_far) continue;
      deadlines[i].lead_seconds = has_near ? std::max(deadlines[i].lead_seconds,
                                                      far[i].lead_seconds + deadlines[i].duration)
                                           : far[i].lead_seconds;
    }
  }

  static std::uint32_t near_pages(const Entry& entry) { return entry.pages - entry.far_pages; }

  void delay_write_outs() {
    const std::vector<std::int64_t> early_levels = levels_now();
    // From here on the levels are those before late ones leave.
    // Each stays until it is missed; one that ends before that never leaves, and saves its
    // write-out and its read.
    for (Entry& entry : entries_) {
      if (!is_delayable(entry)) continue;
      choice_.levels.add(entry.interval->begin + 1, entry.interval->covered_ops, entry.pages);
      entry.leave = entry.needed - 1;
      entry.is_needed = false;
    }
    find_due_moments();
    std::vector<Deadline> deadlines;
    for (std::uint32_t i = 0; i < entries_.size(); ++i) {
      const Entry& entry = entries_[i];
      if (!is_delayable(entry) || !entry.is_needed) continue;
      deadlines.push_back({entry.leave, 0.0, i, 0.0});
    }
    find_leads(deadlines, write_seconds);
    for (const Deadline& deadline : deadlines) {
      Entry& entry = entries_[deadline.entry];
      const double start = begin_of(deadline.op) - deadline.lead_seconds;
      entry.leave = last_ended_by(start, entry.interval->begin, deadline.op - 1);
      choice_.levels.add(static_cast<std::uint32_t>((entry.leave + 1) % op_count_),
                         static_cast<std::uint32_t>(entry.needed - entry.leave - 1),
                         -std::int64_t{entry.pages});
    }
    // Late moments are found in one walk, which assumes that the step ends as it began.
    hurry_where_crowded(early_levels);
  }

  /// The last operator from `first` to `last` that has ended by then; `first` if none has.
  std::uint64_t last_ended_by(double moment, std::uint64_t first, std::uint64_t last) const {
    while (first < last) {
      const std::uint64_t middle = first + (last - first + 1) / 2;
      if (begin_of(middle + 1) > moment)
        last = middle - 1;
      else
        first = middle;
    }
    return first;
  }

  std::vector<std::int64_t> levels_now() const {
    std::vector<std::int64_t> levels(op_count_);
    for (std::uint32_t op = 0; op < op_count_; ++op) levels[op] = choice_.levels.at(op);
    return levels;
  }

  /// The walk around the step began in a state that the step need not end with. Where that leaves
  /// too much, everything that should be out leaves early after all, the oldest first.
  void hurry_where_crowded(const std::vector<std::int64_t>& early_levels) {
    // Entries that might: begun in this period, and in the one before. Each is hurried once.
    std::deque<std::uint32_t> begun;
    std::deque<std::uint32_t> begun_before;
    for (std::uint32_t i = 0; i < entries_.size(); ++i) {
      if (is_delayable(entries_[i]) && entries_[i].leave >= op_count_) begun_before.push_back(i);
    }
    std::uint32_t next = 0;
    for (std::uint32_t op = 0; op < op_count_; ++op) {
      for (; next < entries_.size() && entries_[next].interval->begin < op; ++next)
        if (is_delayable(entries_[next])) begun.push_back(next);
      // Where even early write-outs leave too much, there is nothing to hurry for.
      const std::int64_t limit = std::max(early_levels[op], target());
      hurry(begun, op, op, limit);
      hurry(begun_before, op, op + op_count_, limit);
    }
  }

  /// Of these entries, those that are still in at `here`, which is `op` counted from the period of
  /// their begin, until the level is no more than the limit. Forgets those that are not in.
  void hurry(std::deque<std::uint32_t>& waiting, std::uint32_t op, std::uint64_t here,
             std::int64_t limit) {
    for (; !waiting.empty() && choice_.levels.at(op) > limit; waiting.pop_front()) {
      Entry& entry = entries_[waiting.front()];
      const std::uint64_t begin = entry.interval->begin;
      // Out already, or over by then.
      if (here > entry.leave || here - begin > op_count_) continue;
      choice_.levels.add(entry.interval->begin + 1, static_cast<std::uint32_t>(entry.leave - begin),
                         -std::int64_t{entry.pages});
      entry.leave = begin;
      entry.is_needed = true;
    }
  }

  std::int64_t target() const {
    return static_cast<std::int64_t>(plan_.filled_share *
                                     static_cast<double>(limits_.budget_pages));
  }

  bool is_delayable(const Entry& entry) const { return entry.interval->covered_ops < op_count_; }

  /// Walks around the step; where the level asks for it, the oldest interval goes. An interval that
  /// ends before its turn never leaves. Sets `leave` to the operator that needs the room.
  void find_due_moments() {
    struct Waiting {
      std::uint32_t entry;
      std::uint64_t end;
      int period;
    };
    std::deque<Waiting> waiting;
    std::vector<std::int64_t> returning(3 * op_count_ + 1, 0);
    for (std::uint32_t i = 0; i < entries_.size(); ++i) {
      if (is_delayable(entries_[i]) && entries_[i].needed > op_count_)
        waiting.push_back({i, entries_[i].needed - op_count_, -1});
    }
    std::int64_t out = 0;
    std::uint32_t next = 0;
    // Twice around, since what begins in the first round may go in the second. Only intervals of
    // the first get their moment here; the others stand for the steps before and behind.
    for (std::uint64_t now = 0; now < 2 * op_count_; ++now) {
      const int period = now < op_count_ ? 0 : 1;
      const std::uint64_t op = now % op_count_;
      const auto begin_waiting_before = [&](std::uint64_t before, int begun_in) {
        for (; next < entries_.size() && entries_[next].interval->begin < before; ++next) {
          if (is_delayable(entries_[next]))
            waiting.push_back({next, entries_[next].needed + begun_in * op_count_, begun_in});
        }
      };
      if (now == op_count_) {
        begin_waiting_before(op_count_, 0);
        next = 0;
      }
      begin_waiting_before(op, period);
      out -= returning[now];
      const std::int64_t level = choice_.levels.at(static_cast<std::uint32_t>(op));
      while (level - out > target() && !waiting.empty()) {
        const Waiting oldest = waiting.front();
        waiting.pop_front();
        // It was needed before its room was: it stays.
        if (oldest.end <= now) continue;
        out += entries_[oldest.entry].pages;
        returning[oldest.end] += entries_[oldest.entry].pages;
        if (oldest.period != 0) continue;
        entries_[oldest.entry].leave = now;
        entries_[oldest.entry].is_needed = true;
      }
    }
  }

  void place_fetches() {
    std::vector<Deadline> deadlines;
    for (std::uint32_t i = 0; i < entries_.size(); ++i) {
      const Entry& entry = entries_[i];
      if (!entry.is_needed || entry.interval->end != IntervalEnd::kUsed) continue;
      deadlines.push_back({entry.needed, 0.0, i, 0.0});
    }
    find_leads(deadlines, read_seconds);
    const std::int64_t ceiling = limits_.budget_pages;
    // Where room is scarce the nearer need takes it, so place in the order of need.
    for (auto deadline = deadlines.rbegin(); deadline != deadlines.rend(); ++deadline) {
      Entry& entry = entries_[deadline->entry];
      const double start = begin_of(entry.needed) - deadline->lead_seconds;
      // Later than wished for where an operator in between has no room: coming earlier would force
      // something else out.
      entry.fetch = earliest_with_room(entry, last_begun_by(start, entry), ceiling);
      choice_.levels.add(static_cast<std::uint32_t>(entry.fetch % op_count_),
                         static_cast<std::uint32_t>(entry.needed - entry.fetch), entry.pages);
    }
  }

  /// The last operator that has begun by then, among those before which the value may come back.
  std::uint64_t last_begun_by(double moment, const Entry& entry) const {
    std::uint64_t first = entry.leave + 1;
    std::uint64_t last = entry.needed;
    while (first < last) {
      const std::uint64_t middle = first + (last - first + 1) / 2;
      if (begin_of(middle) > moment)
        last = middle - 1;
      else
        first = middle;
    }
    return first;
  }

  /// The first operator from `first` on from which the value fits in until it is needed. Around the
  /// whole step it would meet itself.
  std::uint64_t earliest_with_room(const Entry& entry, std::uint64_t first,
                                   std::int64_t ceiling) const {
    std::uint64_t last = entry.needed;
    if (last - first >= op_count_) first = last - op_count_ + 1;
    while (first < last) {
      const std::uint64_t middle = first + (last - first) / 2;
      const auto length = static_cast<std::uint32_t>(entry.needed - middle);
      const auto at = static_cast<std::uint32_t>(middle % op_count_);
      if (choice_.levels.max(at, length) + entry.pages > ceiling)
        first = middle + 1;
      else
        last = middle;
    }
    return last;
  }

  void emit() {
    std::vector<std::uint32_t> swaps_of_epoch(touches_.epoch_count, 0);
    for (const Entry& entry : entries_) {
      if (entry.is_needed && entry.interval->epoch != kNeverWritten)
        // By what really leaves: a late write-out that is never due makes no copy.
        ++swaps_of_epoch[entry.interval->epoch];
    }
    for (const Entry& entry : entries_) {
      if (!entry.is_needed) continue;
      PlannedSwap swap;
      swap.pages = entry.pages;
      swap.far_pages = entry.far_pages;
      swap.last_touch = entry.interval->begin;
      swap.leave = static_cast<OpIndex>(entry.leave % op_count_);
      swap.value = number_after(tape_, entry.interval->value, entry.leave / op_count_);
      swap.fetch_value = swap.needed_value = swap.value;
      const bool is_fetched = entry.interval->end == IntervalEnd::kUsed;
      swap.out_ops =
          static_cast<std::uint32_t>((is_fetched ? entry.fetch : entry.needed) - entry.leave - 1);
      if (is_fetched) {
        swap.fetch = static_cast<OpIndex>(entry.fetch % op_count_);
        swap.needed = static_cast<OpIndex>(entry.needed % op_count_);
        swap.fetch_value = number_after(tape_, entry.interval->value, entry.fetch / op_count_);
        swap.needed_value = number_after(tape_, entry.interval->value, entry.needed / op_count_);
        const std::uint32_t epoch = entry.interval->epoch;
        // A copy is worth keeping where a later swap finds it and no write makes it void before.
        swap.keeps_copy = (epoch == kNeverWritten || swaps_of_epoch[epoch] > 1) &&
                          !is_written(swap.needed, swap.needed_value);
      }
      plan_.swaps.push_back(swap);
    }
    list_by_moment(plan_, op_count_);
  }

  bool is_written(OpIndex op, ValueIndex value) const {
    const auto touches = touches_of(tape_, op);
    return std::any_of(touches.begin(), touches.end(),
                       [&](const auto& use) { return use.value == value && use.writes; });
  }

  const StepTape& tape_;
  const TouchIntervals& touches_;
  EvictionChoice choice_;
  const std::vector<double>& begins_;
  const SwapLimits& limits_;
  const TransferStyle style_;
  SwapPlan& plan_;
  const std::uint64_t op_count_;
  std::vector<Entry> entries_;
};

}  // namespace

void list_by_moment(SwapPlan& plan, std::size_t op_count) {
  std::vector<OpIndex> leaves;
  std::vector<OpIndex> fetches;
  for (const PlannedSwap& swap : plan.swaps) {
    leaves.push_back(swap.leave);
    fetches.push_back(swap.fetch);
  }
  plan.write_outs = group_by_op(leaves, op_count);
  plan.fetches = group_by_op(fetches, op_count);
  const auto distance = [&](std::uint32_t index) {
    const PlannedSwap& swap = plan.swaps[index];
    return (swap.needed + op_count - swap.fetch) % op_count;
  };
  const auto entries = plan.fetches.entries.begin();
  for (std::size_t op = 0; op < op_count; ++op)
    std::stable_sort(entries + plan.fetches.first[op], entries + plan.fetches.first[op + 1],
                     [&](auto a, auto b) { return distance(a) < distance(b); });
}

PageCost page_cost(const TransferRates& rates, Bytes page_size) {
  const auto page = static_cast<double>(page_size.count());
  return {rates.write.seconds_for(page) + rates.write_fixed_seconds / kChunkPages,
          rates.read.seconds_for(page) + rates.read_fixed_seconds / kChunkPages};
}

PageCost page_cost(const SwapLimits& limits, std::uint32_t excess_pages) {
  const PageCost near = page_cost(limits.rates, limits.page_size);
  if (!limits.far || limits.far->near_pages >= excess_pages) return near;
  const PageCost far = page_cost(rates_behind(limits.rates, limits.far->rates), limits.page_size);
  // Which pages go far is decided after what leaves, so the choice reckons with the mean of both.
  const double share = static_cast<double>(limits.far->near_pages) / excess_pages;
  return {share * near.write + (1.0 - share) * far.write,
          share * near.read + (1.0 - share) * far.read};
}

std::vector<double> compute_begins(const StepTape& tape) {
  std::vector<double> begins(tape.ops.size() + 1, 0.0);
  for (std::size_t op = 0; op < tape.ops.size(); ++op)
    begins[op + 1] = begins[op] + seconds(tape.ops[op].time);
  return begins;
}

void schedule_transfers(const StepTape& tape, const TouchIntervals& touches, EvictionChoice choice,
                        const std::vector<double>& begins, const SwapLimits& limits,
                        TransferStyle style, SwapPlan& plan) {
  Scheduler(tape, touches, std::move(choice), begins, limits, style, plan).schedule();
}

std::vector<std::uint32_t> fetch_reserves(const StepTape& tape, std::uint32_t ahead) {
  const std::size_t op_count = tape.ops.size();
  std::vector<std::int64_t> growth(op_count, 0);
  for (const auto& value : tape.values) {
    if (value.birth != kCarriedIn) growth[value.birth] += value.pages;
    if (value.death != kSurvives) growth[value.death] -= value.pages;
  }
  std::vector<std::uint32_t> reserves(op_count, 0);
  for (std::size_t op = 0; op < op_count; ++op) {
    // Not a sum of what they allocate: what one of them frees serves those behind it.
    std::int64_t grown = 0;
    std::int64_t most = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(ahead, op_count); ++i) {
      const std::size_t later = (op + i) % op_count;
      most = std::max(most, grown + tape.ops[later].inside_peak_pages);
      grown += growth[later];
    }
    reserves[op] = static_cast<std::uint32_t>(most);
  }
  return reserves;
}

}  // namespace spillway::planner
