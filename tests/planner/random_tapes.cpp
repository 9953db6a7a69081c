#include "random_tapes.h"

#include <algorithm>
#include <random>

namespace spillway::planner {

using profile::OpIndex;
using profile::StepTape;
using profile::TapeOp;
using profile::TapeValue;
using profile::ValueIndex;

namespace {

class Generator {
 public:
  Generator(std::uint64_t seed, const RandomTapeShape& shape) : random_(seed), shape_(shape) {}

  StepTape generate() {
    for (std::uint32_t i = 0; i < shape_.persistent; ++i) add({.pages = pages(), .becomes = i});
    std::vector<ValueIndex> dying;
    if (shape_.has_carried) {
      for (std::uint32_t i = 0; i < below(3); ++i) dying.push_back(add({.pages = pages()}));
    }
    if (shape_.has_long_lives) {
      for (const ValueIndex value : dying)
        add({.pages = tape_.values[value].pages, .becomes = value});
    }
    for (OpIndex op = 0; op < shape_.ops; ++op) {
      add_op(op);
      while (!dying.empty() && chance(30)) {
        end(dying.back(), op);
        dying.pop_back();
      }
    }
    for (const ValueIndex value : dying) end(value, shape_.ops - 1);
    settle_survivors();
    return std::move(tape_);
  }

 private:
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  bool chance(std::uint32_t percent) { return below(100) < percent; }
  std::uint32_t pages() { return 1 + below(shape_.max_pages); }

  ValueIndex add(const TapeValue& value) {
    tape_.values.push_back(value);
    live_.push_back(static_cast<ValueIndex>(tape_.values.size() - 1));
    return live_.back();
  }

  void end(ValueIndex value, OpIndex op) {
    tape_.values[value].death = op;
    live_.erase(std::find(live_.begin(), live_.end(), value));
  }

  void add_op(OpIndex index) {
    TapeOp op;
    op.signature = random_();
    op.time = std::chrono::microseconds(100 + below(5000));
    op.first_use = static_cast<std::uint32_t>(tape_.uses.size());
    std::vector<ValueIndex> choices = live_;
    std::shuffle(choices.begin(), choices.end(), random_);
    choices.resize(std::min<std::size_t>(choices.size(), below(shape_.max_uses + 1)));
    for (const ValueIndex used : choices) tape_.uses.push_back({used, chance(25)});
    op.use_count = static_cast<std::uint32_t>(choices.size());
    if (chance(20)) op.inside_peak_pages = pages();
    if (chance(shape_.births_percent)) {
      const ValueIndex born = add({.pages = pages(), .birth = index});
      op.inside_peak_pages += tape_.values[born].pages;
    }
    if (shape_.replayable_percent > 0) op.is_replayable = chance(shape_.replayable_percent);
    tape_.ops.push_back(op);
    for (std::size_t i = live_.size(); i-- > 0;) {
      const ValueIndex value = live_[i];
      const bool is_temporary = tape_.values[value].birth != profile::kCarriedIn;
      if (is_temporary && tape_.values[value].birth < index && chance(12)) end(value, index);
    }
  }

  /// Survivors take the place of the values that were carried in and died; the others die.
  void settle_survivors() {
    std::vector<bool> is_taken(tape_.values.size(), false);
    for (const TapeValue& value : tape_.values) {
      if (value.becomes != profile::kNoValue) is_taken[value.becomes] = true;
    }
    std::vector<ValueIndex> places;
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      if (tape_.values[i].birth == profile::kCarriedIn && !is_taken[i]) places.push_back(i);
    }
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      TapeValue& value = tape_.values[i];
      if (value.death != profile::kSurvives || value.birth == profile::kCarriedIn) continue;
      const auto place = std::find_if(places.begin(), places.end(), [&](ValueIndex candidate) {
        return tape_.values[candidate].pages == value.pages;
      });
      if (place == places.end()) {
        value.death = shape_.ops - 1;
      } else {
        value.becomes = *place;
        places.erase(place);
      }
    }
    // Where no survivor fits, one more is born at the end.
    for (const ValueIndex place : places) {
      tape_.values.push_back(
          {.pages = tape_.values[place].pages, .birth = shape_.ops - 1, .becomes = place});
      tape_.ops.back().inside_peak_pages += tape_.values[place].pages;
    }
  }

  std::mt19937_64 random_;
  const RandomTapeShape& shape_;
  StepTape tape_;
  std::vector<ValueIndex> live_;
};

/// Tries every number of pages for every stretch between two touches.
class Search {
 public:
  Search(const StepTape& tape, std::uint32_t budget) : tape_(tape), budget_(budget) {
    const std::size_t op_count = tape.ops.size();
    level_.assign(op_count, 0);
    for (ValueIndex value = 0; value < tape.values.size(); ++value) add_stretches(value);
    for (std::size_t op = 0; op < op_count; ++op) level_[op] += tape.ops[op].inside_peak_pages;
  }

  std::uint64_t run() {
    best_ = kImpossible;
    chosen_.assign(stretches_.size(), 0);
    choose(0);
    return best_;
  }

 private:
  struct Stretch {
    std::vector<OpIndex> covered;
    std::uint32_t pages;
    std::uint32_t epoch;
    bool is_read;
    bool is_written;  ///< False for values whose copy never goes stale.
  };

  void add_stretches(ValueIndex index) {
    const TapeValue& value = tape_.values[index];
    const bool persists = value.becomes == index;
    const auto op_count = static_cast<OpIndex>(tape_.ops.size());
    const OpIndex from = persists ? 0 : value.birth + 1;
    const OpIndex to = persists ? op_count : value.death + 1;
    for (OpIndex op = from; op < to; ++op) level_[op] += value.pages;

    std::vector<std::pair<OpIndex, bool>> touches;  // Operator, writes.
    if (!persists) touches.emplace_back(value.birth, true);
    for (OpIndex op = 0; op < op_count; ++op) {
      for (std::uint32_t i = 0; i < tape_.ops[op].use_count; ++i) {
        const auto& use = tape_.uses[tape_.ops[op].first_use + i];
        if (use.value == index) touches.emplace_back(op, use.writes);
      }
    }
    if (touches.empty()) {
      // Idle: may stay out for ever at no cost.
      std::vector<OpIndex> all;
      for (OpIndex op = 0; op < op_count; ++op) all.push_back(op);
      stretches_.push_back({all, value.pages, next_epoch_++, false, false});
      return;
    }
    const bool is_ever_written =
        std::any_of(touches.begin(), touches.end(), [](const auto& touch) { return touch.second; });
    // Start behind a write, so that epochs do not wrap.
    if (persists && is_ever_written) {
      while (!touches.front().second)
        std::rotate(touches.begin(), touches.begin() + 1, touches.end());
    }
    for (std::size_t i = 0; i < touches.size(); ++i) {
      if (touches[i].second) ++next_epoch_;
      const bool is_last = i + 1 == touches.size();
      OpIndex end = is_last ? (persists ? touches[0].first : to) : touches[i + 1].first;
      Stretch stretch{{}, value.pages, next_epoch_, !is_last || persists, is_ever_written};
      if (persists && end <= touches[i].first) end += op_count;
      for (OpIndex op = touches[i].first + 1; op < end; ++op)
        stretch.covered.push_back(op % op_count);
      if (!stretch.covered.empty()) stretches_.push_back(stretch);
    }
    ++next_epoch_;
  }

  std::uint64_t cost() const {
    std::uint64_t cost = 0;
    std::vector<std::uint32_t> copied(next_epoch_ + 1, 0);
    for (std::size_t i = 0; i < stretches_.size(); ++i) {
      if (stretches_[i].is_read) cost += chosen_[i];
      if (stretches_[i].is_written)
        copied[stretches_[i].epoch] = std::max(copied[stretches_[i].epoch], chosen_[i]);
    }
    for (const std::uint32_t pages : copied) cost += pages;
    return cost;
  }

  void choose(std::size_t next) {
    if (cost() >= best_) return;
    if (next == stretches_.size()) {
      const bool fits = std::all_of(level_.begin(), level_.end(),
                                    [&](std::int64_t level) { return level <= budget_; });
      if (fits) best_ = cost();
      return;
    }
    const Stretch& stretch = stretches_[next];
    for (std::uint32_t pages = 0; pages <= stretch.pages; ++pages) {
      chosen_[next] = pages;
      for (const OpIndex op : stretch.covered) level_[op] -= pages;
      choose(next + 1);
      for (const OpIndex op : stretch.covered) level_[op] += pages;
    }
    chosen_[next] = 0;
  }

  const StepTape& tape_;
  const std::int64_t budget_;
  std::vector<std::int64_t> level_;
  std::vector<Stretch> stretches_;
  std::vector<std::uint32_t> chosen_;
  std::uint32_t next_epoch_ = 0;
  std::uint64_t best_ = kImpossible;
};

}  // namespace

StepTape random_tape(std::uint64_t seed, const RandomTapeShape& shape) {
  return Generator(seed, shape).generate();
}

std::uint64_t fewest_transfers(const StepTape& tape, std::uint32_t budget_pages) {
  return Search(tape, budget_pages).run();
}

}  // namespace spillway::planner
