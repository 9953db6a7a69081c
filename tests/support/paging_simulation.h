#pragma once

#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/runtime/learning/step_learner.h"

namespace spillway::testing {

/// What a trainer did and suffered during one step.
struct StepCounts {
  std::uint64_t missed_ranges = 0;  ///< Inputs that nobody had asked for before the operator did.
  std::uint64_t written_pages = 0;
  std::uint64_t read_pages = 0;
  std::uint64_t forced_pages = 0;  ///< Evicted because room was lacking, not by advice.
  double stall_seconds = 0.0;
  double seconds = 0.0;
};

/// A small pager with a clock of its own that runs a scripted trainer under a hard budget. With a
/// learner it honours the advice; without one it evicts what was used longest ago. Independent of
/// the planner's event model on purpose: it is the simulator.
class PagingSimulation {
 public:
  struct Options {
    std::uint32_t budget_pages = 1U << 30;
    double write_pages_per_second = 3000.0;
    double read_pages_per_second = 1800.0;
    bool follows_advice = true;
    bool announces_steps = true;
  };

  explicit PagingSimulation(const Options& options);

  struct Input {
    std::uint32_t range;
    bool writes = false;
  };
  /// Runs an operator; returns its outputs. `inside_pages` are allocated and freed inside.
  std::vector<std::uint32_t> op(std::string_view name, std::vector<Input> inputs,
                                std::vector<std::uint32_t> output_pages, double seconds,
                                std::uint32_t inside_pages = 0);
  std::uint32_t op1(std::string_view name, std::vector<Input> inputs, std::uint32_t output_pages,
                    double seconds, std::uint32_t inside_pages = 0) {
    return op(name, std::move(inputs), {output_pages}, seconds, inside_pages).front();
  }
  /// A storage that is allocated between operators.
  std::uint32_t allocate(std::uint32_t pages);
  void free(std::uint32_t range);
  void begin_step();
  /// Ends the counting of a step (not known to the learner).
  StepCounts take_counts();

  const runtime::StepLearner& learner() const { return learner_; }
  runtime::StepLearner& learner() { return learner_; }
  std::uint32_t live_peak() const { return live_peak_; }
  std::uint32_t resident_peak() const { return resident_peak_; }

 private:
  enum class PageState : std::uint8_t { kResident, kOut, kReading };
  struct Page {
    PageState state = PageState::kResident;
    bool is_dirty = true;
    bool is_leaving = false;
  };
  struct Range {
    std::vector<Page> pages;
    std::uint64_t generation = 0;
    std::uint64_t next_use = runtime::kUnknownUse;
    std::uint64_t last_touch = 0;
    bool is_live = false;
    bool is_pinned = false;
    bool is_requested = false;  ///< Fetched by advice, not yet complete.
  };
  struct Transfer {
    std::uint32_t range;
    std::uint64_t generation;
    std::uint32_t page;
    std::uint64_t asked_at;  ///< Operator count.
  };
  struct Channel {
    std::deque<Transfer> queue;
    bool is_busy = false;
    Transfer active{};
    double ends = 0.0;
  };

  bool is_current(const Transfer& transfer) const;
  std::uint32_t new_range(std::uint32_t pages);
  void take_room(std::uint32_t pages);
  void make_resident(std::uint32_t range);
  void evict_one();
  void leave(std::uint32_t range, std::uint32_t page);
  void start_transfers();
  bool advance_event(double until);
  void advance_to(double until);
  void finish_write();
  void finish_read();
  void apply(const runtime::Advice& advice);
  void note_resident();
  TimePoint now() const;

  Options options_;
  runtime::StepLearner learner_;
  runtime::Advice advice_;
  std::vector<Range> ranges_;
  std::vector<std::uint32_t> free_ids_;
  Channel writes_;
  Channel reads_;
  std::deque<Transfer> demanded_;
  std::deque<Transfer> fetches_;
  std::uint64_t generation_ = 0;
  std::uint64_t clock_ = 0;
  std::uint32_t resident_ = 0;  ///< Frames in use.
  std::uint32_t live_ = 0;
  std::uint32_t live_peak_ = 0;
  std::uint32_t resident_peak_ = 0;
  std::uint32_t reserve_ = 0;
  double time_ = 0.0;
  double step_begin_ = 0.0;
  StepCounts counts_;
};

}  // namespace spillway::testing
