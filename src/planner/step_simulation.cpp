#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "estimate_mean.h"
#include "near_copies.h"
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

// Repetitions until the model gives up on seeing two equal ones and takes the mean of the last
// half.
constexpr std::size_t kMostPeriods = 8;
constexpr double kWorkGrain = 1e6;  // Two moments of a transfer are equal up to so much of a page.
constexpr double kForever = std::numeric_limits<double>::infinity();

/// One store, or two of them: what asks which one is left out where there is one.
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
      if (!estimate_.is_complete) return estimate_;
      carry_over();
      std::vector<std::uint64_t> end_state = boundary_state();
      // As it began: all further repetitions are equal to this one.
      if (end_state == begin_state) return estimate_;
      begin_state = std::move(end_state);
    }
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
    estimate_.step_seconds = now_ - begin + estimate_.interference_seconds;
    end_events();
    return estimate_;
  }

  /// What the transfers beside them have cost the operators. Bytes of the far tier pass both.
  double slowdown_seconds() const {
    double sum = 0.0;
    for (std::size_t i = 0; i < channels_.size(); ++i) {
      double per_byte = limits_.rates.slowdown_seconds_per_byte();
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
    for (const std::uint32_t i : plan_.fetches.of(op)) fetch(plan_.swaps[i].fetch_value);
    for (const auto& use : touches_of(tape_, op)) demand(use.value);
    const double arrived = now_;
    while (is_missing(op) && estimate_.is_complete) wait_or_evict(op, kChunkPages);
    while (held_ + entry.inside_peak_pages > limits_.budget_pages && estimate_.is_complete)
      wait_or_evict(op, held_ + entry.inside_peak_pages - limits_.budget_pages);
    if (!estimate_.is_complete) return;
    estimate_.stall_seconds += now_ - arrived;
    demanded_.clear();

    held_ += entry.inside_peak_pages;
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
      state.next_use = moment(plan_.use_distance[entry.first_use + i]);
      victims_.enter(use.value, values_[use.value]);
    }
    for (const ValueIndex born : births_.of(op)) {
      Residency& state = values_[born];
      state = Residency{};
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
    const std::uint32_t clean =
        std::min(pages, state.present - std::min(state.present, state.dirty));
    state.present -= clean;
    held_ -= clean;
    if (pages == clean || pages - clean <= state.leaving) return;
    state.leaving = pages - clean;
    std::size_t tier = 0;
    if constexpr (kHasFar) tier = copies_.goes_far(value) ? 1 : 0;
    channels_[write_of(tier)].queue.push_back(value);
  }

  void fetch(ValueIndex value) {
    if (value == kNoValue) return;
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
      if (writes.chunk > 0 && writes.active == value) writes.is_cancelled = true;
    }
  }

  void demand(ValueIndex value) {
    keep(value);
    Residency& state = values_[value];
    state.pinned_at = clock_ + 1;
    const std::uint32_t missing = pages_of(value) - state.present;
    if (missing == 0) return;
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
      step = std::min(step, left[i]);
    }
    if (step == kForever) return false;
    const bool is_until = step == until - now_;
    now_ = is_until ? until : now_ + step;
    for (std::size_t i = 0; i < channels_.size(); ++i)
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
    if (writes.active == kNoValue || writes.is_cancelled) {
      if (kHasFar && tier == 0) copies_.release(pages);
      return;
    }
    Residency& state = values_[writes.active];
    state.leaving -= std::min(state.leaving, pages);
    const std::uint32_t gone = std::min(pages, state.present);
    state.present -= gone;
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
