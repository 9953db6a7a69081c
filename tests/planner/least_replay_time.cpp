#include "least_replay_time.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cycle_mean.h"

namespace spillway::planner {
namespace {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::kSurvives;
using profile::OpIndex;
using profile::StepTape;
using profile::TapeUse;
using profile::TapeValue;
using profile::ValueIndex;

constexpr std::size_t kMostBoundaries = 40;
constexpr std::size_t kMostVisited = 15000;

constexpr std::size_t kMostValues = 12;
constexpr std::uint32_t kMostPages = 3;
constexpr std::uint32_t kMostVersions = 7;

/// What there is of a value.
struct Presence {
  std::uint8_t exists : 1 = 0;   ///< 0: not born, dead, or dropped.
  std::uint8_t dirty : 2 = 0;    ///< Resident pages without a copy.
  std::uint8_t clean : 2 = 0;    ///< Resident pages with one; all others are in the store.
  std::uint8_t version : 3 = 0;  ///< Writes since its birth, or since the begin of the step.
  bool operator==(const Presence&) const = default;
};

/// All on which the future depends.
struct Situation {
  std::array<Presence, kMostValues> values;
  std::uint8_t next = 0;     ///< The operator of the step that comes next, or runs.
  std::uint8_t running = 0;  ///< The operator that runs, plus one; 0 while none does.
  std::uint8_t is_replay = 0;
  std::uint8_t ticks_left = 0;
  bool operator==(const Situation&) const = default;
};
static_assert(sizeof(Situation) == 2 * sizeof(std::uint64_t));

struct SituationHash {
  std::size_t operator()(const Situation& situation) const {
    const auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(situation);
    return (halves[0] ^ halves[1] * 0x9E3779B97F4A7C15U) * 0xD6E8FEB86659FD93U >> 16;
  }
};

bool fits(const StepTape& tape) {
  return tape.values.size() <= kMostValues && tape.uses.size() <= kMostVersions * kMostValues &&
         std::all_of(tape.values.begin(), tape.values.end(),
                     [](const TapeValue& value) { return value.pages <= kMostPages; });
}

Presence present(std::uint32_t dirty, std::uint32_t clean, std::uint32_t version) {
  return {1, static_cast<std::uint8_t>(dirty & 3), static_cast<std::uint8_t>(clean & 3),
          static_cast<std::uint8_t>(version & kMostVersions)};
}

std::uint32_t count(const Presence& value) { return std::uint32_t{value.dirty} + value.clean; }

class ReplayExplorer {
 public:
  ReplayExplorer(const StepTape& tape, std::uint32_t budget, bool is_duplex)
      : tape_(tape), budget_(budget), is_duplex_(is_duplex), finds_(tape.uses.size(), 0) {
    std::vector<std::uint8_t> version(tape.values.size(), 0);
    for (std::size_t i = 0; i < tape.uses.size(); ++i) {
      finds_[i] = version[tape.uses[i].value];
      if (tape.uses[i].writes) ++version[tape.uses[i].value];
    }
  }

  std::optional<double> least_mean() {
    Situation first;
    for (ValueIndex i = 0; i < tape_.values.size(); ++i)
      if (tape_.values[i].birth == kCarriedIn) first.values[i] = whole(i, 0);
    number_of(first);
    for (std::uint32_t from = 0; from < boundaries_.size(); ++from) {
      if (!explore(from) || boundaries_.size() > kMostBoundaries) return std::nullopt;
    }
    return least_cycle_mean(edges_, boundaries_.size());
  }

 private:
  std::uint32_t number_of(const Situation& boundary) {
    const auto [place, is_new] =
        numbers_.emplace(boundary, static_cast<std::uint32_t>(boundaries_.size()));
    if (is_new) boundaries_.push_back(boundary);
    return place->second;
  }

  bool explore(std::uint32_t from) {
    visited_.clear();
    now_ = {boundaries_[from]};
    std::size_t reached = 0;
    for (std::uint32_t tick = 0; !now_.empty(); ++tick) {
      later_.clear();
      while (!now_.empty()) {
        const Situation situation = now_.back();
        now_.pop_back();
        if (!visited_.insert(situation).second) continue;
        if (visited_.size() > kMostVisited) return false;
        if (situation.next < tape_.ops.size()) {
          go_on(situation);
        } else if (const auto boundary = next_step(situation)) {
          edges_.push_back({from, number_of(*boundary), tick});
          ++reached;
        }
      }
      now_.swap(later_);
    }
    return reached > 0;
  }

  /// The step begins again. Nothing brings back what was dropped before.
  std::optional<Situation> next_step(const Situation& end) const {
    Situation next;
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      const TapeValue& value = tape_.values[i];
      if (value.death != kSurvives) continue;
      if (!end.values[i].exists) return std::nullopt;
      if (value.becomes == kNoValue) continue;
      next.values[value.becomes] = end.values[i];
      next.values[value.becomes].version = 0;
    }
    return next;
  }

  void go_on(const Situation& situation) {
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      if (is_held(situation, i)) continue;
      const Presence& value = situation.values[i];
      if (value.clean > 0)
        now_.push_back(with(situation, i, present(value.dirty, value.clean - 1U, value.version)));
      if (value.exists && may_drop(situation, i)) now_.push_back(with(situation, i, {}));
    }
    if (situation.running == 0) {
      begin(situation, situation.next, false);
      for (OpIndex op = 0; op < situation.next; ++op)
        if (tape_.ops[op].is_replayable) begin(situation, op, true);
    } else if (situation.ticks_left == 0) {
      end(situation);
      return;
    }
    pass_tick(situation);
  }

  /// Its next use in the step will ask for it; or only replays do.
  bool may_drop(const Situation& situation, ValueIndex value) const {
    const TapeValue& entry = tape_.values[value];
    if (entry.birth == kCarriedIn) return false;
    if (entry.death != kSurvives && entry.death < situation.next) return true;
    for (OpIndex op = situation.next; op < tape_.ops.size(); ++op) {
      for (std::uint32_t i = 0; i < tape_.ops[op].use_count; ++i) {
        const bool is_over = situation.running == op + 1 && !situation.is_replay;
        if (tape_.uses[tape_.ops[op].first_use + i].value == value && !is_over) return true;
      }
    }
    return false;
  }

  void begin(Situation situation, OpIndex op, bool is_replay) {
    for (std::uint32_t i = 0; i < tape_.ops[op].use_count; ++i) {
      const std::uint32_t use = tape_.ops[op].first_use + i;
      const ValueIndex used = tape_.uses[use].value;
      const Presence& value = situation.values[used];
      const bool is_whole = value.exists && count(value) == tape_.values[used].pages;
      if (!is_whole || value.version != finds_[use]) return;
    }
    if (held(situation) + tape_.ops[op].inside_peak_pages > budget_) return;
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(tape_.ops[op].time);
    situation.running = static_cast<std::uint8_t>(op + 1);
    situation.is_replay = is_replay;
    situation.ticks_left = static_cast<std::uint8_t>(time.count());
    now_.push_back(situation);
  }

  void end(const Situation& before) {
    const OpIndex op = before.running - 1U;
    Situation after = before;
    after.running = after.ticks_left = after.is_replay = 0;
    for (std::uint32_t i = 0; i < tape_.ops[op].use_count; ++i) {
      const TapeUse& use = tape_.uses[tape_.ops[op].first_use + i];
      if (!use.writes) continue;
      Presence& value = after.values[use.value];
      value = whole(use.value, value.version + 1U);
    }
    std::vector<Situation> ends{after};
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      if (tape_.values[i].birth != op) continue;
      const std::size_t count = ends.size();
      for (std::size_t e = 0; e < count; ++e) {
        // What a replay makes takes the place of what is there, or is freed at once.
        if (before.is_replay) ends.push_back(ends[e]);
        ends[e].values[i] = whole(i, 0);
      }
    }
    for (Situation& each : ends) {
      for (ValueIndex i = 0; i < tape_.values.size() && !before.is_replay; ++i)
        if (tape_.values[i].death == op) each.values[i] = {};
      if (!before.is_replay) ++each.next;
      now_.push_back(each);
    }
  }

  void pass_tick(const Situation& situation) {
    std::vector<Situation> after_write{situation};
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      const Presence& value = situation.values[i];
      if (value.dirty > 0 && !is_written(situation, i))
        after_write.push_back(
            with(situation, i, present(value.dirty - 1U, value.clean + 1U, value.version)));
    }
    const std::uint32_t inside =
        situation.running == 0 ? 0 : tape_.ops[situation.running - 1U].inside_peak_pages;
    const bool has_room = held(situation) + inside + 1 <= budget_;
    for (std::size_t w = 0; w < after_write.size(); ++w) {
      add_later(after_write[w]);
      if (!has_room || (w > 0 && !is_duplex_)) continue;
      for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
        const Presence& value = after_write[w].values[i];
        if (!value.exists || count(value) == tape_.values[i].pages) continue;
        add_later(with(after_write[w], i, present(value.dirty, value.clean + 1U, value.version)));
      }
    }
  }

  void add_later(Situation situation) {
    if (situation.ticks_left > 0) --situation.ticks_left;
    later_.push_back(situation);
  }

  static Situation with(Situation situation, ValueIndex value, const Presence& presence) {
    situation.values[value] = presence;
    return situation;
  }
  Presence whole(ValueIndex value, std::uint32_t version) const {
    return present(tape_.values[value].pages, 0, version);
  }

  static std::uint32_t held(const Situation& situation) {
    std::uint32_t pages = 0;
    for (const Presence& each : situation.values) pages += count(each);
    return pages;
  }

  bool is_held(const Situation& situation, ValueIndex value) const {
    return uses(situation, value, false);
  }
  bool is_written(const Situation& situation, ValueIndex value) const {
    return uses(situation, value, true);
  }
  bool uses(const Situation& situation, ValueIndex value, bool only_writes) const {
    if (situation.running == 0) return false;
    const auto& op = tape_.ops[situation.running - 1U];
    for (std::uint32_t i = 0; i < op.use_count; ++i) {
      const TapeUse& use = tape_.uses[op.first_use + i];
      if (use.value == value && (use.writes || !only_writes)) return true;
    }
    return false;
  }

  const StepTape& tape_;
  const std::uint32_t budget_;
  const bool is_duplex_;
  std::vector<std::uint8_t> finds_;  ///< Per use: the version that the operator asks for.
  std::vector<Situation> boundaries_;
  std::unordered_map<Situation, std::uint32_t, SituationHash> numbers_;
  std::vector<StepEdge> edges_;
  std::unordered_set<Situation, SituationHash> visited_;
  std::vector<Situation> now_;
  std::vector<Situation> later_;
};

}  // namespace

std::optional<double> least_ticks_with_replays(const StepTape& tape, std::uint32_t budget_pages,
                                               bool is_duplex) {
  if (!fits(tape)) return std::nullopt;
  return ReplayExplorer(tape, budget_pages, is_duplex).least_mean();
}

}  // namespace spillway::planner
