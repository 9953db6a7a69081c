#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>

#include "spillway/planner/swap_plan.h"
#include "step_observer.h"
#include "touch_intervals.h"
#include "transfer_channels.h"
#include "transfer_schedule.h"
#include "value_states.h"

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::TapeOp;
using profile::TapeValue;

namespace {

/// Mean over several repetitions; peaks are the largest. Complete if all are.
StepEstimate mean_of(std::span<const StepEstimate> periods) {
  const std::size_t count = periods.size();
  StepEstimate sum;
  for (const StepEstimate& period : periods) {
    sum.step_seconds += period.step_seconds;
    sum.stall_seconds += period.stall_seconds;
    sum.interference_seconds += period.interference_seconds;
    sum.written_pages += period.written_pages;
    sum.read_pages += period.read_pages;
    sum.far_written_pages += period.far_written_pages;
    sum.far_read_pages += period.far_read_pages;
    // Not means: memory has to hold the fullest repetition.
    sum.near_peak_pages = std::max(sum.near_peak_pages, period.near_peak_pages);
    sum.peak_pages = std::max(sum.peak_pages, period.peak_pages);
    sum.demand_reads += period.demand_reads;
    sum.forced_evictions += period.forced_evictions;
    sum.is_complete = sum.is_complete && period.is_complete;
  }
  const auto rounded = [&](auto& number) {
    number = static_cast<std::remove_reference_t<decltype(number)>>((number + count / 2) / count);
  };
  rounded(sum.written_pages);
  rounded(sum.read_pages);
  rounded(sum.far_written_pages);
  rounded(sum.far_read_pages);
  rounded(sum.demand_reads);
  rounded(sum.forced_evictions);
  sum.step_seconds /= static_cast<double>(count);
  sum.stall_seconds /= static_cast<double>(count);
  sum.interference_seconds /= static_cast<double>(count);
  return sum;
}

// Repetitions until the model gives up on seeing two equal ones and takes the mean of the last
// half.
constexpr std::size_t kMostPeriods = 8;
constexpr double kWorkGrain = 1e6;  // Two moments of a transfer are equal up to so much of a page.
constexpr double kForever = std::numeric_limits<double>::infinity();

/// One store, or two of them. A template, because searches simulate one store thousands of times:
/// what asks which tier is meant would cost them there for nothing.
///
/// What holds between any two events:
///
///     pages of a value    [ dirty | clean | out ]     the last resident ones leave first
///     held_               present pages of all values, pages of reads in flight, and what the
///                         operator that runs has allocated beside them
///     now_, clock_        seconds and operators since the first repetition; next uses are told
///                         by the latter, so they stay right over the end of a step
///
/// A write frees its pages when it ends, a read takes them when it begins: their frames are taken
/// as long as a transfer goes on. Queues hold values and no pages, and may hold some that have
/// died, come back or been touched since; who takes one out looks at its state.
template <std::size_t kTiers>
class Simulation {
 public:
  Simulation(const StepTape& tape, const SwapPlan& plan, const SwapLimits& limits,
             StepEvents* events)
      : tape_(tape),
        plan_(plan),
        limits_(limits),
        observer_(events),
        births_(births_per_op(tape)),
        deaths_(deaths_per_op(tape)),
        values_(tape.values.size()),
        copies_(tape, kHasFar ? tape.values.size() : 0, kHasFar ? limits.far->near_pages : 0) {
    set_rates(limits, channels_);
    set_shares(limits, shares_);
  }

  StepEstimate run() {
    enter_first_period();
    std::vector<std::uint64_t> begin_state = boundary_state();
    std::vector<StepEstimate> periods;
    while (periods.size() < kMostPeriods) {
      periods.push_back(run_period());
      // What does not work in one repetition is refused, whatever later ones would do.
      if (!estimate_.is_complete) return estimate_;
      carry_over();
      std::vector<std::uint64_t> end_state = boundary_state();
      // As it began: all further repetitions are equal to this one.
      if (end_state == begin_state) return estimate_;
      begin_state = std::move(end_state);
    }
    // Some plans go through two or three states in turn, and never come back to the one that the
    // first repetition began in; the first ones are left out, since they still settle.
    StepEstimate mean = mean_of(std::span(periods).last(kMostPeriods / 2));
    mean.is_settled = false;
    return mean;
  }

 private:
  static constexpr bool kHasFar = kTiers > 1;

  static constexpr std::size_t write_of(std::size_t tier) { return 2 * tier; }
  static constexpr std::size_t read_of(std::size_t tier) { return 2 * tier + 1; }

  std::uint32_t pages_of(ValueIndex value) const { return tape_.values[value].pages; }

  StepEstimate run_period() {
    estimate_ = StepEstimate{};
    if constexpr (kHasFar) estimate_.near_peak_pages = copies_.used();
    moved_beside_.fill(0.0);
    const double begin = now_;
    begin_events();
    for (OpIndex op = 0; op < tape_.ops.size() && estimate_.is_complete; ++op, ++clock_) run_op(op);
    estimate_.interference_seconds = slowdown_seconds();
    // Added at the end instead of slowing operators as they run: what they lose does not depend on
    // when, and moments of transfers stay those of the plan.
    estimate_.step_seconds = now_ - begin + estimate_.interference_seconds;
    end_events();
    return estimate_;
  }

  /// What the transfers beside them have cost the operators. Bytes of the far tier pass both.
  double slowdown_seconds() const {
    double sum = 0.0;
    for (std::size_t i = 0; i < channels_.size(); ++i) {
      double per_byte = limits_.rates.slowdown_seconds_per_byte();
      // The link slows the operators by its copies, the disk by what its processor does: far bytes
      // do both.
      if (i >= write_of(1)) per_byte += limits_.far->rates.slowdown_seconds_per_byte();
      sum += moved_beside_[i] * static_cast<double>(limits_.page_size.count()) * per_byte;
    }
    return sum;
  }

  /// All on which the next repetition depends.
  std::vector<std::uint64_t> boundary_state() const {
    std::vector<std::uint64_t> state;
    for (const Residency& value : values_) {
      state.push_back(std::uint64_t{value.present} << 32 | value.dirty);
      state.push_back(std::uint64_t{value.leaving} << 32 | value.coming);
    }
    for (const Channel& channel : channels_) {
      state.push_back(channel.queue.size());
      state.insert(state.end(), channel.queue.begin(), channel.queue.end());
      state.push_back(channel.chunk);
      if (channel.chunk == 0) continue;
      state.push_back(std::uint64_t{channel.active} << 1 | (channel.is_cancelled ? 1 : 0));
      // Rounded, because equal repetitions differ in the last digits of their times, which would
      // never recur.
      state.push_back(static_cast<std::uint64_t>(std::llround(channel.work_left * kWorkGrain)));
    }
    if constexpr (kHasFar) copies_.add_state(state);
    return state;
  }

  void enter_first_period() {
    for (ValueIndex i = 0; i < values_.size(); ++i) {
      if (tape_.values[i].birth != kCarriedIn) continue;
      values_[i].present = values_[i].dirty = pages_of(i);
      values_[i].next_use = moment(plan_.birth_distance[i]);
    }
    const std::uint64_t op_count = tape_.ops.size();
    for (const PlannedSwap& swap : plan_.swaps) {
      // Out at the begin of a step: left in an earlier one and is not yet on the way back.
      ValueIndex value = swap.value;
      const std::uint64_t end = std::uint64_t{swap.leave} + 1 + swap.out_ops;
      for (std::uint64_t boundary = op_count; boundary <= end; boundary += op_count) {
        value = renamed(value);
        if (value == kNoValue) break;
        values_[value].present = values_[value].dirty = pages_of(value) - swap.pages;
        if constexpr (kHasFar) copies_.enter(value, swap);
      }
    }
    for (const Residency& state : values_) held_ += state.present;
  }

  std::uint64_t moment(std::uint32_t distance) const {
    return distance >= kStaysUnused ? distance : clock_ + distance;
  }

  /// The step begins again: survivors go by the numbers that they have in it.
  void carry_over() {
    // Into a new vector: a survivor may take the number of a value that has not been carried over
    // yet.
    std::vector<Residency> next(values_.size());
    for (ValueIndex i = 0; i < values_.size(); ++i) {
      const TapeValue& value = tape_.values[i];
      if (value.death != profile::kSurvives) continue;
      if (value.becomes == kNoValue)
        drop(i);
      else
        next[value.becomes] = values_[i];
    }
    values_.swap(next);
    if constexpr (kHasFar) copies_.rename();
    for (Channel& channel : channels_) {
      // What waits or flies over the boundary goes on in the next step, by the number that its
      // value has there.
      for (ValueIndex& value : channel.queue) value = renamed(value);
      if (channel.chunk > 0) {
        channel.active = renamed(channel.active);
        if (channel.active != kNoValue) channel.event.value = channel.active;
      }
    }
    for (ValueIndex i = 0; i < values_.size(); ++i) {
      // Without a past: it comes into being here.
      if (tape_.values[i].birth != kCarriedIn || values_[i].present + values_[i].coming > 0)
        continue;
      if (has_past_.empty()) find_pasts();
      // It goes on from a value of the step before, and is out because that was.
      if (has_past_[i]) continue;
      values_[i].present = values_[i].dirty = pages_of(i);
      values_[i].next_use = moment(plan_.birth_distance[i]);
      held_ += pages_of(i);
    }
    victims_.clear();  // Their numbers have changed.
  }

  void find_pasts() {
    has_past_.assign(values_.size(), false);
    for (const TapeValue& value : tape_.values) {
      if (value.becomes != kNoValue) has_past_[value.becomes] = true;
    }
  }

  ValueIndex renamed(ValueIndex value) const {
    return value == kNoValue ? kNoValue : tape_.values[value].becomes;
  }

  void run_op(OpIndex op) {
    const TapeOp& entry = tape_.ops[op];
    reserve_ = plan_.reserve_pages[op];
    // Planned fetches are queued before the operator asks for its own values: these overtake them,
    // and what both want is asked for once.
    for (const std::uint32_t i : plan_.fetches.of(op)) fetch(plan_.swaps[i].fetch_value);
    for (const auto& use : touches_of(tape_, op)) demand(use.value);
    const double arrived = now_;
    // Pages first, then room: reads take room themselves, and only what is resident can be held by
    // the operator.
    while (is_missing(op) && estimate_.is_complete) wait_or_evict(op, kChunkPages);
    while (held_ + entry.inside_peak_pages > limits_.budget_pages && estimate_.is_complete)
      wait_or_evict(op, held_ + entry.inside_peak_pages - limits_.budget_pages);
    if (!estimate_.is_complete) return;
    // Whatever moved meanwhile cost nobody anything, so it is no interference (see `progress`).
    estimate_.stall_seconds += now_ - arrived;
    // Its values are all there; the queue of fetches goes on where it was.
    demanded_.clear();

    held_ += entry.inside_peak_pages;
    // The reserve is for what this and the next operators allocate; its own part is taken now.
    reserve_ -= std::min(reserve_, entry.inside_peak_pages);
    estimate_.peak_pages = std::max(estimate_.peak_pages, held_);
    const double begin = now_;
    note_residency();
    computes_ = true;
    advance(now_ + seconds(entry.time));
    computes_ = false;
    held_ -= entry.inside_peak_pages;
    finish_op(op, entry);
    observer_.note_operator(op, begin, now_);
    note_residency();
  }

  void finish_op(OpIndex op, const TapeOp& entry) {
    const auto touches = touches_of(tape_, op);
    for (std::size_t i = 0; i < touches.size(); ++i) {
      const auto& use = touches[i];
      Residency& state = values_[use.value];
      if (use.writes) {
        state.dirty = pages_of(use.value);
        if constexpr (kHasFar) copies_.forget(use.value);
      }
      // From the plan and not from the tape, because strategies may tell their own (see `demand`).
      state.next_use = moment(plan_.use_distance[entry.first_use + i]);
      victims_.enter(use.value, values_[use.value]);
    }
    for (const ValueIndex born : births_.of(op)) {
      Residency& state = values_[born];
      state = Residency{};
      // No copy in any store: it has to be written before it can leave.
      state.present = state.dirty = pages_of(born);
      state.next_use = moment(plan_.birth_distance[born]);
      held_ += pages_of(born);
      victims_.enter(born, values_[born]);
    }
    for (const ValueIndex died : deaths_.of(op)) drop(died);
    for (const std::uint32_t i : plan_.write_outs.of(op)) {
      const PlannedSwap& swap = plan_.swaps[i];
      const std::uint32_t staying = pages_of(swap.value) - swap.pages;
      const Residency& state = values_[swap.value];
      // Some of its pages may be out still, or have been forced out: then they need not leave
      // again.
      if (state.present <= staying) continue;
      if constexpr (kHasFar) copies_.aim(swap.value, state, swap);
      take_out(swap.value, state.present - staying);
    }
  }

  void drop(ValueIndex value) {
    Residency& state = values_[value];
    held_ -= state.present;
    // The frames of a read in flight come free when it ends.
    for (Channel& channel : channels_)
      if (channel.chunk > 0 && channel.active == value) channel.active = kNoValue;
    state = Residency{};
    if constexpr (kHasFar) copies_.forget(value);
  }

  /// The tier from which the next missing page comes.
  std::size_t next_tier(ValueIndex value) const {
    if constexpr (!kHasFar) return 0;
    return values_[value].present + copies_.pages(value) >= pages_of(value) ? 0 : 1;
  }

  /// Lets the last resident pages go: clean ones now, the others when written.
  void take_out(ValueIndex value, std::uint32_t pages) {
    Residency& state = values_[value];
    // The last pages leave, and dirty ones are the first: so clean ones go at once, and only what
    // is left is written.
    const std::uint32_t clean =
        std::min(pages, state.present - std::min(state.present, state.dirty));
    state.present -= clean;
    held_ -= clean;
    // On their way already.
    if (pages == clean || pages - clean <= state.leaving) return;
    state.leaving = pages - clean;
    std::size_t tier = 0;
    if constexpr (kHasFar) tier = copies_.goes_far(value) ? 1 : 0;
    channels_[write_of(tier)].queue.push_back(value);
  }

  void fetch(ValueIndex value) {
    if (value == kNoValue) return;
    // What is wanted back must not leave any more, although its write-out may be queued.
    keep(value);
    Residency& state = values_[value];
    const std::uint32_t missing = pages_of(value) - state.present - state.coming;
    if (missing == 0) return;
    state.coming += missing;
    channels_[read_of(next_tier(value))].queue.push_back(value);
  }

  void keep(ValueIndex value) {
    values_[value].leaving = 0;
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      Channel& writes = channels_[write_of(tier)];
      // The chunk in flight cannot be called back: it ends, costs its time, and its pages stay.
      if (writes.chunk > 0 && writes.active == value) writes.is_cancelled = true;
    }
  }

  void demand(ValueIndex value) {
    keep(value);
    Residency& state = values_[value];
    state.pinned_at = clock_ + 1;
    const std::uint32_t missing = pages_of(value) - state.present;
    if (missing == 0) return;
    // Where no fetch is queued or under way.
    if (state.coming == 0) ++estimate_.demand_reads;
    state.coming = missing;
    demanded_.push_back(value);
  }

  bool is_missing(OpIndex op) const {
    const auto touches = touches_of(tape_, op);
    return std::any_of(touches.begin(), touches.end(), [this](const auto& use) {
      return values_[use.value].present < pages_of(use.value);
    });
  }

  void wait_or_evict(OpIndex op, std::uint32_t wanted) {
    if (observer_.is_looking()) note_wait(op);
    // Something in flight may bring the pages or make the room; evicting is for when nothing is,
    // since what leaves against the plan comes back for another wait.
    if (!advance_one_event(kForever)) force_out(wanted);
    if (observer_.is_looking()) observer_.end_wait(now_);
  }

  void begin_events() {
    if (!observer_.is_looking()) return;
    // What is in flight began before this repetition.
    for (Channel& channel : channels_) channel.event.begin -= observer_.in_step(now_);
    observer_.begin_step(now_);
    note_residency();
  }

  void end_events() {
    if (!observer_.is_looking()) return;
    for (const Channel& channel : channels_) {
      if (channel.chunk == 0) continue;
      TransferEvent unfinished = channel.event;
      unfinished.pages = 0;
      observer_.note_transfer(unfinished, now_);
    }
    observer_.end_step();
  }

  void note_residency() { observer_.note_residency(now_, held_); }

  void note_wait(OpIndex op) {
    start_transfers();
    WaitReason reason = WaitReason::kRoom;
    ValueIndex missing = kNoValue;
    for (const ValueIndex value : demanded_) {
      if (values_[value].present == pages_of(value)) continue;
      missing = value;
      // A read that was under way before still ends first.
      for (std::size_t tier = 0; tier < kTiers; ++tier)
        if (channels_[read_of(tier)].chunk > 0) reason = WaitReason::kPages;
      break;
    }
    observer_.begin_wait(op, reason, missing, now_);
  }

  /// Nothing is in flight that could help: what is needed last goes, what dies unused at the end.
  void force_out(std::uint32_t wanted) {
    const ValueIndex victim = victims_.find(values_, clock_ + 1);
    if (victim == kNoValue) {
      estimate_.is_complete = false;
      return;
    }
    // No more than asked for: the value may be needed soon, and pages that stay need not be read.
    const std::uint32_t pages = std::min(values_[victim].present, wanted);
    estimate_.forced_evictions += pages;
    if constexpr (kHasFar) copies_.aim_near(victim, values_[victim]);
    take_out(victim, pages);
  }

  void start_transfers() {
    for (std::size_t tier = 0; tier < kTiers; ++tier) start_write(tier);
    // A value may go on to the other tier when its turn comes: mostly from the far to the near one.
    for (std::size_t tier = kTiers; tier-- > 0;) start_read(tier);
    if constexpr (kHasFar) start_read(1);
  }

  void start_write(std::size_t tier) {
    Channel& writes = channels_[write_of(tier)];
    while (writes.chunk == 0 && !writes.queue.empty()) {
      const ValueIndex value = writes.queue.front();
      // It has died, or was touched since it was queued. Queues are not searched for it at that
      // moment; it is passed over when its turn comes.
      if (value == kNoValue || values_[value].leaving == 0) {
        writes.queue.pop_front();
        continue;
      }
      std::uint32_t pages = std::min(kChunkPages, values_[value].leaving);
      if constexpr (kHasFar) {
        pages = std::min(pages, room_in(tier, value));
        if (pages == 0) {
          writes.queue.pop_front();
          continue;
        }
        if (tier == 0) reserve_near(pages);
      }
      start(writes, value, pages);
    }
  }

  /// Pages that the tier takes of a value whose turn it is. What the near tier has no room for goes
  /// on to the far one.
  std::uint32_t room_in(std::size_t tier, ValueIndex value) {
    if (copies_.goes_far(value) != (tier == 1)) return 0;  // It has left this queue.
    if (tier == 1) return kChunkPages;
    const std::uint32_t room = copies_.room_for(value, values_);
    if (room == 0) channels_[write_of(1)].queue.push_back(value);
    return room;
  }

  void reserve_near(std::uint32_t pages) {
    copies_.reserve(pages);
    estimate_.near_peak_pages = std::max(estimate_.near_peak_pages, copies_.used());
  }

  void start_read(std::size_t tier) {
    Channel& reads = channels_[read_of(tier)];
    if (reads.chunk > 0) return;
    const std::uint32_t room = limits_.budget_pages - std::min(limits_.budget_pages, held_);
    // Of two tiers, the other one may bring what the operator waits for; the room for that is not
    // free for fetches of this one.
    std::uint32_t claimed = 0;  // By what an operator waits for and another tier has.
    for (const ValueIndex value : demanded_) {
      if (values_[value].coming == 0) continue;
      const std::uint32_t chunk = next_chunk(tier, value);
      if (kHasFar && chunk == 0) {
        claimed += values_[value].coming;
        continue;
      }
      const std::uint32_t pages = std::min(chunk, room);
      if (pages > 0) start_reading(reads, value, pages, true);
      return;  // Nothing overtakes what an operator waits for.
    }
    while (!reads.queue.empty()) {
      const ValueIndex value = reads.queue.front();
      if (value != kNoValue && values_[value].coming > 0) {
        const std::uint32_t pages = next_chunk(tier, value);
        if (kHasFar && pages == 0 && next_tier(value) != tier) {
          channels_[read_of(1 - tier)].queue.push_front(value);
          reads.queue.pop_front();
          continue;
        }
        // A fetch that took the room of the next operators would be paid for by evictions. So it
        // waits, and those behind it, since they are needed later still.
        if (pages > 0 && room >= std::uint64_t{reserve_} + claimed + pages)
          start_reading(reads, value, pages, false);
        return;
      }
      reads.queue.pop_front();
    }
  }

  /// Pages of a value that this tier may read next: one tier after the other.
  std::uint32_t next_chunk(std::size_t tier, ValueIndex value) const {
    const std::uint32_t pages = std::min(kChunkPages, values_[value].coming);
    if constexpr (!kHasFar) return pages;
    const Channel& other = channels_[read_of(1 - tier)];
    if (next_tier(value) != tier || (other.chunk > 0 && other.active == value)) return 0;
    const std::uint32_t missing = pages_of(value) - values_[value].present;
    return tier == 0 ? pages : std::min(pages, missing - copies_.pages(value));
  }

  void start_reading(Channel& reads, ValueIndex value, std::uint32_t pages, bool is_demanded) {
    start(reads, value, pages);
    reads.event.is_demanded = is_demanded;
    held_ += pages;
    estimate_.peak_pages = std::max(estimate_.peak_pages, held_);
    note_residency();
  }

  void start(Channel& channel, ValueIndex value, std::uint32_t pages) const {
    channel.event.value = value;
    channel.event.pages = pages;
    channel.event.begin = observer_.in_step(now_);
    channel.active = value;
    channel.chunk = pages;
    // What was queued behind another one is ready when that ends.
    channel.work_left = pages + (channel.ended == now_ ? 0.0 : channel.fixed_pages);
    channel.is_cancelled = false;
  }

  void advance(double until) {
    while (now_ < until) advance_one_event(until);
  }

  /// Moves time to the next end of a chunk, or to `until`. False with nothing in flight and no
  /// limit: nothing will ever happen. A chunk may end without time passing, when its end was also
  /// `until` of the last call.
  bool advance_one_event(double until) {
    start_transfers();
    BusyChannels busy = 0;
    for (std::size_t i = 0; i < channels_.size(); ++i)
      busy |= (channels_[i].chunk > 0 ? 1U : 0U) << i;
    const auto& shares = shares_[busy];
    std::array<double, 2 * kTiers> left;
    double step = until - now_;
    for (std::size_t i = 0; i < channels_.size(); ++i) {
      const Channel& channel = channels_[i];
      left[i] = channel.chunk == 0 ? kForever
                                   : channel.work_left / (channel.pages_per_second * shares[i]);
      // Rates change only when a channel gets busy or idle, so until the first of these ends
      // nothing changes.
      step = std::min(step, left[i]);
    }
    if (step == kForever) return false;
    const bool is_until = step == until - now_;
    // Not by adding: rounding would leave a rest of time, in which nothing ends.
    now_ = is_until ? until : now_ + step;
    for (std::size_t i = 0; i < channels_.size(); ++i)
      // The one that ends is told so instead of being found by what is left: a rest of rounding
      // would cost an event more, and make equal repetitions differ.
      progress(i, step * shares[i], left[i] <= step);
    for (std::size_t tier = 0; tier < kTiers; ++tier)
      if (left[write_of(tier)] <= step) finish_write(tier);
    for (std::size_t tier = 0; tier < kTiers; ++tier)
      if (left[read_of(tier)] <= step) finish_read(tier);
    return true;
  }

  void progress(std::size_t i, double seconds, bool is_finished) {
    Channel& channel = channels_[i];
    if (channel.chunk == 0) return;
    const double before = std::min<double>(channel.work_left, channel.chunk);  // After fixed time.
    channel.work_left -= seconds * channel.pages_per_second;
    if (is_finished) channel.work_left = 0.0;
    // Only beside an operator that runs: one that waits cannot be slowed down.
    if (computes_) moved_beside_[i] += std::max(0.0, before - channel.work_left);
  }

  void finish_write(std::size_t tier) {
    Channel& writes = channels_[write_of(tier)];
    const std::uint32_t pages = writes.chunk;
    writes.chunk = 0;
    writes.ended = now_;
    estimate_.written_pages += pages;
    if (tier == 1) estimate_.far_written_pages += pages;
    observer_.note_transfer(writes.event, now_);
    // Counted as written, because the link was busy with it; but its pages stay, or are gone
    // already.
    if (writes.active == kNoValue || writes.is_cancelled) {
      if (kHasFar && tier == 0) copies_.release(pages);
      return;
    }
    Residency& state = values_[writes.active];
    state.leaving -= std::min(state.leaving, pages);
    const std::uint32_t gone = std::min(pages, state.present);
    state.present -= gone;
    // The last pages have left, so what is dirty ends where presence ends.
    state.dirty = std::min(state.dirty, state.present);
    held_ -= gone;
    if (kHasFar && tier == 0) {
      copies_.add(writes.active, gone);
      copies_.release(pages - gone);
    }
    note_residency();
  }

  void finish_read(std::size_t tier) {
    Channel& reads = channels_[read_of(tier)];
    const std::uint32_t pages = reads.chunk;
    reads.chunk = 0;
    reads.ended = now_;
    estimate_.read_pages += pages;
    if (tier == 1) estimate_.far_read_pages += pages;
    observer_.note_transfer(reads.event, now_);
    // Its value died in flight: the frames were taken when the read began, and come free only now.
    if (reads.active == kNoValue) {
      held_ -= pages;
      note_residency();
      return;
    }
    Residency& state = values_[reads.active];
    state.present += pages;
    state.coming -= std::min(state.coming, pages);
    if (state.present == pages) victims_.enter(reads.active, values_[reads.active]);
    if constexpr (kHasFar)
      if (state.present == pages_of(reads.active)) copies_.note_back(reads.active);
  }

  const StepTape& tape_;
  const SwapPlan& plan_;
  const SwapLimits& limits_;
  StepObserver observer_;
  const PerOp births_;
  const PerOp deaths_;
  std::vector<Residency> values_;
  std::vector<bool> has_past_;
  std::vector<ValueIndex> demanded_;
  Channels<kTiers> channels_;
  ChannelShares<kTiers> shares_;
  std::array<double, 2 * kTiers> moved_beside_{};  ///< Pages, beside operators that run.
  bool computes_ = false;                          ///< An operator runs and does not wait.
  NearCopies copies_;                              ///< Of two tiers; else empty.
  std::uint64_t clock_ = 0;
  Victims victims_;
  std::uint32_t held_ = 0;
  std::uint32_t reserve_ = 0;
  double now_ = 0.0;
  StepEstimate estimate_;
};

}  // namespace

StepEstimate estimate_step(const StepTape& tape, const SwapPlan& plan, const SwapLimits& limits) {
  if (limits.far) return Simulation<2>(tape, plan, limits, nullptr).run();
  return Simulation<1>(tape, plan, limits, nullptr).run();
}

StepEstimate observe_step(const StepTape& tape, const SwapPlan& plan, const SwapLimits& limits,
                          StepEvents& events) {
  if (limits.far) return Simulation<2>(tape, plan, limits, &events).run();
  return Simulation<1>(tape, plan, limits, &events).run();
}

}  // namespace spillway::planner
