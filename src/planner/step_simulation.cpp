#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <queue>

#include "spillway/planner/step_events.h"
#include "spillway/planner/swap_plan.h"
#include "touch_intervals.h"
#include "transfer_schedule.h"

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

/// One direction of the disk: a queue of values and the chunk in flight.
struct Channel {
  std::deque<ValueIndex> queue;
  ValueIndex active = kNoValue;  ///< kNoValue with `chunk` > 0: its value died meanwhile.
  std::uint32_t chunk = 0;       ///< Pages in flight; 0: idle.
  bool is_cancelled = false;
  double work_left = 0.0;  ///< Pages.
  double pages_per_second = 0.0;
  TransferEvent event;       ///< Of the chunk, as far as known.
  double fixed_pages = 0.0;  ///< Moved in the fixed time of each chunk.
};

struct Residency {
  std::uint32_t present = 0;    ///< The first pages of the value are resident.
  std::uint32_t dirty = 0;      ///< The first pages have no valid copy in the store.
  std::uint32_t leaving = 0;    ///< Pages still to be written before they leave.
  std::uint32_t coming = 0;     ///< Pages still to be read, the chunk in flight included.
  std::uint64_t next_use = 0;   ///< Operator count; kDiesUnused and the like as they are.
  std::uint64_t pinned_at = 0;  ///< Operator count plus one.
};

StepEstimate mean(const StepEstimate* periods, std::size_t count) {
  StepEstimate sum;
  for (std::size_t i = 0; i < count; ++i) {
    sum.step_seconds += periods[i].step_seconds;
    sum.stall_seconds += periods[i].stall_seconds;
    sum.interference_seconds += periods[i].interference_seconds;
    sum.written_pages += periods[i].written_pages;
    sum.read_pages += periods[i].read_pages;
    sum.peak_pages = std::max(sum.peak_pages, periods[i].peak_pages);
    sum.demand_reads += periods[i].demand_reads;
    sum.forced_evictions += periods[i].forced_evictions;
  }
  const auto rounded = [&](auto& number) {
    number = static_cast<std::remove_reference_t<decltype(number)>>((number + count / 2) / count);
  };
  rounded(sum.written_pages);
  rounded(sum.read_pages);
  rounded(sum.demand_reads);
  rounded(sum.forced_evictions);
  sum.step_seconds /= static_cast<double>(count);
  sum.stall_seconds /= static_cast<double>(count);
  sum.interference_seconds /= static_cast<double>(count);
  return sum;
}

struct Victim {
  std::uint64_t score = 0;  ///< The highest leaves first.
  ValueIndex value = 0;
  bool operator<(const Victim& other) const {
    return score != other.score ? score < other.score : value > other.value;
  }
};

class Simulation {
 public:
  Simulation(const StepTape& tape, const SwapPlan& plan, const SwapLimits& limits,
             StepEvents* events)
      : tape_(tape),
        plan_(plan),
        limits_(limits),
        events_(events),
        births_(births_per_op(tape)),
        deaths_(deaths_per_op(tape)),
        values_(tape.values.size()) {
    const auto page = static_cast<double>(limits.page_size.count());
    writes_.pages_per_second = limits.rates.write_bytes_per_second / page;
    reads_.pages_per_second = limits.rates.read_bytes_per_second / page;
    reads_.event.direction = Direction::kReadIn;
    writes_.fixed_pages = limits.rates.write_fixed_seconds * writes_.pages_per_second;
    reads_.fixed_pages = limits.rates.read_fixed_seconds * reads_.pages_per_second;
  }

  StepEstimate run() {
    enter_first_period();
    std::vector<std::uint64_t> begin_state = boundary_state();
    std::vector<StepEstimate> periods;
    while (periods.size() < kMostPeriods) {
      periods.push_back(run_period());
      if (!estimate_.is_complete) break;
      carry_over();
      std::vector<std::uint64_t> end_state = boundary_state();
      // As it began: all further repetitions are equal to this one.
      if (end_state == begin_state) break;
      begin_state = std::move(end_state);
    }
    if (periods.size() < kMostPeriods) return periods.back();
    return mean(periods.data() + kMostPeriods / 2, kMostPeriods / 2);
  }

 private:
  std::uint32_t pages_of(ValueIndex value) const { return tape_.values[value].pages; }

  StepEstimate run_period() {
    estimate_ = StepEstimate{};
    const double begin = now_;
    if (events_ != nullptr) begin_events();
    for (OpIndex op = 0; op < tape_.ops.size() && estimate_.is_complete; ++op, ++clock_) run_op(op);
    const double bytes = static_cast<double>(estimate_.written_pages + estimate_.read_pages) *
                         static_cast<double>(limits_.page_size.count());
    estimate_.interference_seconds = bytes * limits_.rates.interference_seconds_per_byte;
    estimate_.step_seconds = now_ - begin + estimate_.interference_seconds;
    if (events_ != nullptr) end_events();
    return estimate_;
  }

  /// All on which the next repetition depends.
  std::vector<std::uint64_t> boundary_state() const {
    std::vector<std::uint64_t> state;
    for (const Residency& value : values_) {
      state.push_back(std::uint64_t{value.present} << 32 | value.dirty);
      state.push_back(std::uint64_t{value.leaving} << 32 | value.coming);
    }
    for (const Channel* channel : {&writes_, &reads_}) {
      state.push_back(channel->queue.size());
      state.insert(state.end(), channel->queue.begin(), channel->queue.end());
      state.push_back(channel->chunk);
      if (channel->chunk == 0) continue;
      state.push_back(std::uint64_t{channel->active} << 1 | (channel->is_cancelled ? 1 : 0));
      state.push_back(static_cast<std::uint64_t>(std::llround(channel->work_left * kWorkGrain)));
    }
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
    for (Channel* channel : {&writes_, &reads_}) {
      for (ValueIndex& value : channel->queue) value = renamed(value);
      if (channel->chunk > 0) {
        channel->active = renamed(channel->active);
        if (channel->active != kNoValue) channel->event.value = channel->active;
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
    has_victims_ = false;  // Their numbers have changed.
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
    for (std::uint32_t i = 0; i < entry.use_count; ++i)
      demand(tape_.uses[entry.first_use + i].value);
    const double arrived = now_;
    while (is_missing(entry) && estimate_.is_complete) wait_or_evict(op, kChunkPages);
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
    advance(now_ + seconds(entry.time));
    held_ -= entry.inside_peak_pages;
    finish_op(op, entry);
    if (events_ != nullptr) events_->operators.push_back({op, in_step(begin), in_step(now_)});
    note_residency();
  }

  void finish_op(OpIndex op, const TapeOp& entry) {
    for (std::uint32_t i = 0; i < entry.use_count; ++i) {
      const auto& use = tape_.uses[entry.first_use + i];
      Residency& state = values_[use.value];
      if (use.writes) state.dirty = pages_of(use.value);
      state.next_use = moment(plan_.use_distance[entry.first_use + i]);
      enter_victim(use.value);
    }
    for (const ValueIndex born : births_.of(op)) {
      Residency& state = values_[born];
      state = Residency{};
      state.present = state.dirty = pages_of(born);
      state.next_use = moment(plan_.birth_distance[born]);
      held_ += pages_of(born);
      enter_victim(born);
    }
    for (const ValueIndex died : deaths_.of(op)) drop(died);
    for (const std::uint32_t i : plan_.write_outs.of(op)) {
      const PlannedSwap& swap = plan_.swaps[i];
      const std::uint32_t staying = pages_of(swap.value) - swap.pages;
      const Residency& state = values_[swap.value];
      if (state.present > staying) take_out(swap.value, state.present - staying);
    }
  }

  void drop(ValueIndex value) {
    Residency& state = values_[value];
    held_ -= state.present;
    if (writes_.chunk > 0 && writes_.active == value) writes_.active = kNoValue;
    // The frames of a read in flight come free when it ends.
    if (reads_.chunk > 0 && reads_.active == value) reads_.active = kNoValue;
    state = Residency{};
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
    writes_.queue.push_back(value);
  }

  void fetch(ValueIndex value) {
    if (value == kNoValue) return;
    keep(value);
    Residency& state = values_[value];
    const std::uint32_t missing = pages_of(value) - state.present - state.coming;
    if (missing == 0) return;
    state.coming += missing;
    reads_.queue.push_back(value);
  }

  void keep(ValueIndex value) {
    values_[value].leaving = 0;
    if (writes_.chunk > 0 && writes_.active == value) writes_.is_cancelled = true;
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

  bool is_missing(const TapeOp& entry) const {
    for (std::uint32_t i = 0; i < entry.use_count; ++i) {
      const ValueIndex value = tape_.uses[entry.first_use + i].value;
      if (values_[value].present < pages_of(value)) return true;
    }
    return false;
  }

  void wait_or_evict(OpIndex op, std::uint32_t wanted) {
    if (events_ != nullptr) begin_wait(op);
    if (!advance_one_event(kForever)) force_out(wanted);
    if (events_ != nullptr) end_wait();
  }

  double in_step(double moment) const { return moment - step_begin_; }

  void begin_events() {
    events_->clear();
    // What is in flight began before this repetition.
    for (Channel* channel : {&writes_, &reads_}) channel->event.begin -= now_ - step_begin_;
    step_begin_ = now_;
    note_residency();
  }

  void end_events() {
    for (const Channel* channel : {&writes_, &reads_}) {
      if (channel->chunk == 0) continue;
      events_->transfers.push_back(channel->event);
      events_->transfers.back().pages = 0;
      events_->transfers.back().end = in_step(now_);
    }
    std::stable_sort(events_->transfers.begin(), events_->transfers.end(),
                     [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }

  void note_residency() {
    if (events_ == nullptr) return;
    auto& points = events_->residency;
    if (!points.empty() && points.back().pages == held_) return;
    points.push_back({in_step(now_), held_});
  }

  /// What holds an operator up until the next event; joined with the wait before if it is the same.
  void begin_wait(OpIndex op) {
    start_write();
    start_read();
    wait_ = {op, WaitReason::kRoom, kNoValue, in_step(now_), 0.0};
    for (const ValueIndex value : demanded_) {
      if (values_[value].present == pages_of(value)) continue;
      wait_.value = value;
      // A read that was under way before still ends first.
      if (reads_.chunk > 0) wait_.reason = WaitReason::kPages;
      break;
    }
  }

  void end_wait() {
    wait_.end = in_step(now_);
    if (wait_.end <= wait_.begin) return;
    auto& waits = events_->waits;
    const bool is_same = !waits.empty() && waits.back().op == wait_.op &&
                         waits.back().reason == wait_.reason && waits.back().value == wait_.value;
    if (is_same)
      waits.back().end = wait_.end;
    else
      waits.push_back(wait_);
  }

  /// Nothing is in flight that could help: what is needed last goes, what dies unused at the end.
  void force_out(std::uint32_t wanted) {
    if (!has_victims_) enter_victims();
    std::vector<Victim> pinned;
    ValueIndex victim = kNoValue;
    while (!victims_.empty() && victim == kNoValue) {
      const Victim top = victims_.top();
      const Residency& state = values_[top.value];
      const bool is_current = state.present > 0 && top.score == victim_score(state);
      if (is_current && state.pinned_at != clock_ + 1) {
        victim = top.value;
        break;
      }
      if (is_current) pinned.push_back(top);
      victims_.pop();
    }
    for (const Victim& waiting : pinned) victims_.push(waiting);
    if (victim == kNoValue) {
      estimate_.is_complete = false;
      return;
    }
    const std::uint32_t pages = std::min(values_[victim].present, wanted);
    estimate_.forced_evictions += pages;
    take_out(victim, pages);
  }

  static std::uint64_t victim_score(const Residency& state) {
    if (state.next_use == kDiesUnused) return 1;
    return state.next_use == kStaysUnused ? ~std::uint64_t{0} : state.next_use + 2;
  }

  /// From the first forced eviction on, every value whose next use or presence changes is entered
  /// anew; what an older entry says about it no longer holds.
  void enter_victims() {
    has_victims_ = true;
    victims_ = {};
    for (ValueIndex i = 0; i < values_.size(); ++i) enter_victim(i);
  }

  void enter_victim(ValueIndex value) {
    if (has_victims_ && values_[value].present > 0)
      victims_.push({victim_score(values_[value]), value});
  }

  void start_write() {
    while (writes_.chunk == 0 && !writes_.queue.empty()) {
      const ValueIndex value = writes_.queue.front();
      if (value == kNoValue || values_[value].leaving == 0) {
        writes_.queue.pop_front();
        continue;
      }
      start(writes_, value, std::min(kChunkPages, values_[value].leaving));
    }
  }

  void start_read() {
    if (reads_.chunk > 0) return;
    const std::uint32_t room = limits_.budget_pages - std::min(limits_.budget_pages, held_);
    for (const ValueIndex value : demanded_) {
      const std::uint32_t pages = std::min({kChunkPages, values_[value].coming, room});
      if (values_[value].coming == 0) continue;
      if (pages > 0) start_reading(value, pages, true);
      return;  // Nothing overtakes what an operator waits for.
    }
    while (!reads_.queue.empty()) {
      const ValueIndex value = reads_.queue.front();
      if (value != kNoValue && values_[value].coming > 0) {
        const std::uint32_t pages = std::min(kChunkPages, values_[value].coming);
        if (room >= pages + reserve_) start_reading(value, pages, false);
        return;
      }
      reads_.queue.pop_front();
    }
  }

  void start_reading(ValueIndex value, std::uint32_t pages, bool is_demanded) {
    start(reads_, value, pages);
    reads_.event.is_demanded = is_demanded;
    held_ += pages;
    estimate_.peak_pages = std::max(estimate_.peak_pages, held_);
    note_residency();
  }

  void start(Channel& channel, ValueIndex value, std::uint32_t pages) const {
    channel.event.value = value;
    channel.event.pages = pages;
    channel.event.begin = in_step(now_);
    channel.active = value;
    channel.chunk = pages;
    channel.work_left = pages + channel.fixed_pages;
    channel.is_cancelled = false;
  }

  void advance(double until) {
    while (now_ < until) advance_one_event(until);
  }

  /// Moves time to the next end of a chunk, or to `until`. False with nothing in flight and no
  /// limit: nothing will ever happen. A chunk may end without time passing, when its end was also
  /// `until` of the last call.
  bool advance_one_event(double until) {
    start_write();
    start_read();
    const bool is_duplex = writes_.chunk > 0 && reads_.chunk > 0;
    const double share = is_duplex ? limits_.rates.duplex_share : 1.0;
    const auto time_left = [&](const Channel& channel) {
      return channel.chunk == 0 ? kForever : channel.work_left / (channel.pages_per_second * share);
    };
    const double write_left = time_left(writes_);
    const double read_left = time_left(reads_);
    const double step = std::min({write_left, read_left, until - now_});
    if (step == kForever) return false;
    const bool is_until = step == until - now_;
    now_ = is_until ? until : now_ + step;
    progress(writes_, step * share, write_left <= step);
    progress(reads_, step * share, read_left <= step);
    if (write_left <= step) finish_write();
    if (read_left <= step) finish_read();
    return true;
  }

  static void progress(Channel& channel, double seconds, bool is_finished) {
    if (channel.chunk == 0) return;
    channel.work_left -= seconds * channel.pages_per_second;
    if (is_finished) channel.work_left = 0.0;
  }

  void finish_write() {
    const std::uint32_t pages = writes_.chunk;
    writes_.chunk = 0;
    estimate_.written_pages += pages;
    note_transfer(writes_);
    if (writes_.active == kNoValue || writes_.is_cancelled) return;
    Residency& state = values_[writes_.active];
    state.leaving -= std::min(state.leaving, pages);
    const std::uint32_t gone = std::min(pages, state.present);
    state.present -= gone;
    state.dirty = std::min(state.dirty, state.present);
    held_ -= gone;
    note_residency();
  }

  void note_transfer(Channel& channel) {
    if (events_ == nullptr) return;
    channel.event.end = in_step(now_);
    events_->transfers.push_back(channel.event);
  }

  void finish_read() {
    const std::uint32_t pages = reads_.chunk;
    reads_.chunk = 0;
    estimate_.read_pages += pages;
    note_transfer(reads_);
    if (reads_.active == kNoValue) {
      held_ -= pages;
      note_residency();
      return;
    }
    Residency& state = values_[reads_.active];
    state.present += pages;
    state.coming -= std::min(state.coming, pages);
    if (state.present == pages) enter_victim(reads_.active);
  }

  const StepTape& tape_;
  const SwapPlan& plan_;
  const SwapLimits& limits_;
  StepEvents* const events_;  ///< Null: nobody looks.
  double step_begin_ = 0.0;
  WaitEvent wait_;
  const PerOp births_;
  const PerOp deaths_;
  std::vector<Residency> values_;
  std::vector<bool> has_past_;
  std::vector<ValueIndex> demanded_;
  Channel writes_;
  Channel reads_;
  std::uint64_t clock_ = 0;
  bool has_victims_ = false;
  std::priority_queue<Victim> victims_;
  std::uint32_t held_ = 0;
  std::uint32_t reserve_ = 0;
  double now_ = 0.0;
  StepEstimate estimate_;
};

}  // namespace

StepEstimate estimate_step(const StepTape& tape, const SwapPlan& plan, const SwapLimits& limits) {
  return Simulation(tape, plan, limits, nullptr).run();
}

StepEstimate observe_step(const StepTape& tape, const SwapPlan& plan, const SwapLimits& limits,
                          StepEvents& events) {
  return Simulation(tape, plan, limits, &events).run();
}

}  // namespace spillway::planner
