#include "paging_simulation.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "spillway/base/error.h"

namespace spillway::testing {

using runtime::PieceId;
using runtime::PieceUse;
using runtime::StepLearner;

namespace {

constexpr double kPageBytes = 2097152.0;
constexpr double kForever = std::numeric_limits<double>::infinity();

StepLearner::Options learner_options(const PagingSimulation::Options& options) {
  StepLearner::Options learner;
  learner.budget_pages = options.budget_pages;
  learner.rates.write = TransferRate(options.write_pages_per_second * kPageBytes);
  learner.rates.read = TransferRate(options.read_pages_per_second * kPageBytes);
  return learner;
}

}  // namespace

PagingSimulation::PagingSimulation(const Options& options)
    : options_(options), learner_(learner_options(options)) {}

TimePoint PagingSimulation::now() const {
  return TimePoint(Duration(static_cast<Duration::rep>(time_ * 1e9)));
}

std::vector<std::uint32_t> PagingSimulation::op(std::string_view name, std::vector<Input> inputs,
                                                std::vector<std::uint32_t> output_pages,
                                                double seconds, std::uint32_t inside_pages) {
  ++clock_;
  std::vector<PieceUse> uses;
  for (const Input& input : inputs) {
    if (!ranges_.at(input.range).is_live) throw Error("operator {} uses a dead range", name);
    const auto pages = static_cast<std::uint32_t>(ranges_[input.range].pages.size());
    uses.push_back({PieceId(input.range), pages, input.writes});
  }
  advice_.clear();
  std::uint64_t signature = std::hash<std::string_view>()(name);
  for (const std::uint32_t pages : output_pages) signature = signature * 31 + pages;
  learner_.begin_op(signature, uses, now(), advice_);
  if (advice_.reserve_pages) reserve_ = *advice_.reserve_pages;
  apply(advice_);
  const double asked = time_;
  for (const Input& input : inputs) {
    ranges_[input.range].is_pinned = true;
    for (Page& page : ranges_[input.range].pages) page.is_leaving = false;
  }
  for (const Input& input : inputs) make_resident(input.range);
  for (const Input& input : inputs) {
    Range& range = ranges_[input.range];
    range.last_touch = clock_;
    for (Page& page : range.pages) {
      if (page.state != PageState::kResident) throw Error("{} runs without its input", name);
      page.is_dirty |= input.writes;
    }
  }
  std::vector<std::uint32_t> outputs;
  for (const std::uint32_t pages : output_pages) outputs.push_back(new_range(pages));
  std::uint32_t workspace = 0;
  if (inside_pages > 0) workspace = new_range(inside_pages);
  // As in the engine: this operator has taken the room that was kept for it.
  const auto taken = std::accumulate(output_pages.begin(), output_pages.end(), inside_pages);
  reserve_ -= std::min(reserve_, taken);
  learner_.waited(Duration(static_cast<Duration::rep>((time_ - asked) * 1e9)));
  counts_.stall_seconds += time_ - asked;
  advance_to(time_ + seconds);
  if (inside_pages > 0) free(workspace);

  advice_.clear();
  learner_.end_op(advice_);
  for (const Input& input : inputs) ranges_[input.range].is_pinned = false;
  for (const std::uint32_t output : outputs) ranges_[output].is_pinned = false;
  apply(advice_);
  return outputs;
}

std::uint32_t PagingSimulation::allocate(std::uint32_t pages) {
  const std::uint32_t range = new_range(pages);
  ranges_[range].is_pinned = false;
  return range;
}

std::uint32_t PagingSimulation::new_range(std::uint32_t pages) {
  take_room(pages);
  std::uint32_t id = 0;
  if (free_ids_.empty()) {
    id = static_cast<std::uint32_t>(ranges_.size());
    ranges_.emplace_back();
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
  }
  Range& range = ranges_[id];
  range = Range{};
  range.pages.resize(pages);
  range.generation = ++generation_;
  range.last_touch = clock_;
  range.is_live = true;
  range.is_pinned = true;
  live_ += pages;
  live_peak_ = std::max(live_peak_, live_);
  resident_ += pages;
  note_resident();
  learner_.allocated(PieceId(id), pages);
  return id;
}

void PagingSimulation::free(std::uint32_t id) {
  Range& range = ranges_.at(id);
  if (!range.is_live) throw Error("range {} is freed twice", id);
  learner_.freed(PieceId(id));
  for (const Page& page : range.pages) {
    // The frame of a read in flight comes free when it ends.
    if (page.state == PageState::kResident) --resident_;
  }
  live_ -= static_cast<std::uint32_t>(range.pages.size());
  range.is_live = false;
  range.pages.clear();
  free_ids_.push_back(id);
}

void PagingSimulation::begin_step() {
  if (options_.announces_steps) learner_.step_boundary();
}

StepCounts PagingSimulation::take_counts() {
  StepCounts counts = counts_;
  counts.seconds = time_ - step_begin_;
  step_begin_ = time_;
  counts_ = StepCounts{};
  return counts;
}

bool PagingSimulation::is_current(const Transfer& transfer) const {
  const Range& range = ranges_[transfer.range];
  return range.is_live && range.generation == transfer.generation;
}

void PagingSimulation::note_resident() {
  resident_peak_ = std::max(resident_peak_, resident_);
  if (resident_ > options_.budget_pages)
    throw Error("{} pages resident under a budget of {}", resident_, options_.budget_pages);
}

void PagingSimulation::take_room(std::uint32_t pages) {
  while (resident_ + pages > options_.budget_pages) {
    std::uint32_t leaving = 0;
    for (const Transfer& transfer : writes_.queue) {
      if (is_current(transfer) && ranges_[transfer.range].pages[transfer.page].is_leaving)
        ++leaving;
    }
    if (writes_.is_busy && is_current(writes_.active)) ++leaving;
    if (resident_ + pages > options_.budget_pages + leaving)
      evict_one();
    else
      advance_event(kForever);
  }
}

void PagingSimulation::make_resident(std::uint32_t id) {
  const Range& range = ranges_[id];
  bool is_missing = false;
  for (std::uint32_t i = 0; i < range.pages.size(); ++i) {
    if (range.pages[i].state == PageState::kResident) continue;
    is_missing = true;
    if (range.pages[i].state == PageState::kOut)
      demanded_.push_back({id, range.generation, i, clock_});
  }
  if (is_missing && !range.is_requested) ++counts_.missed_ranges;
  const auto is_incomplete = [&] {
    return std::any_of(range.pages.begin(), range.pages.end(),
                       [](const Page& page) { return page.state != PageState::kResident; });
  };
  while (is_incomplete()) {
    start_transfers();
    if (!reads_.is_busy && !writes_.is_busy)
      evict_one();
    else
      advance_event(kForever);
  }
  ranges_[id].is_requested = false;
}

/// One page of the range that is missed least.
void PagingSimulation::evict_one() {
  std::uint32_t victim = static_cast<std::uint32_t>(-1);
  std::uint64_t best = 0;
  for (std::uint32_t id = 0; id < ranges_.size(); ++id) {
    const Range& range = ranges_[id];
    if (!range.is_live || range.is_pinned) continue;
    const bool has_page = std::any_of(range.pages.begin(), range.pages.end(), [](const Page& page) {
      return page.state == PageState::kResident && !page.is_leaving;
    });
    if (!has_page) continue;
    std::uint64_t score = 1 + clock_ - range.last_touch;
    if (options_.follows_advice && range.next_use == runtime::kNeverUsed)
      score = 1;
    else if (options_.follows_advice && range.next_use < runtime::kUnknownUse &&
             range.next_use >= clock_)
      score = 1 + range.next_use - clock_;
    if (score > best) {
      best = score;
      victim = id;
    }
  }
  if (best == 0)
    throw Error("nothing can leave: {} of {} pages in use", resident_, options_.budget_pages);
  Range& range = ranges_[victim];
  for (std::size_t i = range.pages.size(); i-- > 0;) {
    if (range.pages[i].state != PageState::kResident || range.pages[i].is_leaving) continue;
    ++counts_.forced_pages;
    range.is_requested = false;
    leave(victim, static_cast<std::uint32_t>(i));
    return;
  }
}

void PagingSimulation::leave(std::uint32_t id, std::uint32_t index) {
  Range& range = ranges_[id];
  Page& page = range.pages[index];
  if (!page.is_dirty) {
    page.state = PageState::kOut;
    --resident_;
    return;
  }
  page.is_leaving = true;
  writes_.queue.push_back({id, range.generation, index, clock_});
}

void PagingSimulation::start_transfers() {
  while (!writes_.is_busy && !writes_.queue.empty()) {
    const Transfer transfer = writes_.queue.front();
    writes_.queue.pop_front();
    if (!is_current(transfer) || !ranges_[transfer.range].pages[transfer.page].is_leaving) continue;
    writes_.is_busy = true;
    writes_.active = transfer;
    writes_.ends = time_ + 1.0 / options_.write_pages_per_second;
  }
  const auto start_from = [&](std::deque<Transfer>& queue, std::uint32_t reserve) {
    while (!reads_.is_busy && !queue.empty()) {
      const Transfer transfer = queue.front();
      // A fetch is meant for the next use; once that has passed, it would bring back what left.
      const bool is_wanted = is_current(transfer) &&
                             ranges_[transfer.range].last_touch <= transfer.asked_at &&
                             ranges_[transfer.range].pages[transfer.page].state == PageState::kOut;
      if (is_wanted && resident_ + 1 + reserve > options_.budget_pages) return;
      queue.pop_front();
      if (!is_wanted) continue;
      ranges_[transfer.range].pages[transfer.page].state = PageState::kReading;
      ++resident_;
      note_resident();
      reads_.is_busy = true;
      reads_.active = transfer;
      reads_.ends = time_ + 1.0 / options_.read_pages_per_second;
    }
  };
  start_from(demanded_, 0);
  if (demanded_.empty()) start_from(fetches_, reserve_);
}

/// Moves to the end of the next transfer, at most to `until`. False when nothing ended before that.
bool PagingSimulation::advance_event(double until) {
  start_transfers();
  const double write_end = writes_.is_busy ? writes_.ends : kForever;
  const double read_end = reads_.is_busy ? reads_.ends : kForever;
  const double next = std::min(write_end, read_end);
  if (next == kForever && until == kForever) throw Error("the trainer waits for nothing");
  if (next > until) {
    time_ = until;
    return false;
  }
  time_ = next;
  if (write_end == next)
    finish_write();
  else
    finish_read();
  return true;
}

void PagingSimulation::advance_to(double until) {
  while (advance_event(until)) {
  }
}

void PagingSimulation::finish_write() {
  writes_.is_busy = false;
  ++counts_.written_pages;
  if (!is_current(writes_.active)) return;
  Page& page = ranges_[writes_.active.range].pages[writes_.active.page];
  if (!page.is_leaving) return;
  page.is_leaving = false;
  page.is_dirty = false;
  page.state = PageState::kOut;
  --resident_;
}

void PagingSimulation::finish_read() {
  reads_.is_busy = false;
  ++counts_.read_pages;
  if (!is_current(reads_.active)) {
    --resident_;
    return;
  }
  Page& page = ranges_[reads_.active.range].pages[reads_.active.page];
  page.state = PageState::kResident;
  page.is_dirty = false;
}

void PagingSimulation::apply(const runtime::Advice& advice) {
  if (!options_.follows_advice) return;
  for (const auto& next_use : advice.next_uses)
    ranges_[next_use.piece.value()].next_use = next_use.at;
  for (const auto& write_out : advice.write_outs) {
    const std::uint32_t id = write_out.piece.value();
    Range& range = ranges_[id];
    if (!range.is_live) throw Error("write-out of a dead range");
    std::uint32_t left = write_out.pages;
    for (std::size_t i = range.pages.size(); i-- > 0 && left > 0; --left) {
      const Page& page = range.pages[i];
      if (page.state == PageState::kResident && !page.is_leaving && !range.is_pinned)
        leave(id, static_cast<std::uint32_t>(i));
    }
  }
  for (const auto& [fetched, keeps_copy] : advice.fetches) {
    Range& range = ranges_[fetched.value()];
    if (!range.is_live) throw Error("fetch of a dead range");
    for (std::uint32_t i = 0; i < range.pages.size(); ++i) {
      Page& page = range.pages[i];
      page.is_leaving = false;
      if (page.state == PageState::kOut)
        fetches_.push_back({fetched.value(), range.generation, i, clock_ - 1});
    }
    range.is_requested = true;
  }
}

}  // namespace spillway::testing
