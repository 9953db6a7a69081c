#include "recompute_costs.h"

#include <algorithm>
#include <set>
#include <utility>

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kSurvives;
using profile::TapeUse;
using profile::TapeValue;

namespace {

// Writers that are looked at for one value; what is left out costs nothing, which is allowed.
constexpr std::uint32_t kMostWriters = 48;
// Costs of a class lie within this ratio, unless there are too many classes.
constexpr double kClassRatio = 1.1;
constexpr std::size_t kMostClasses = 96;
constexpr OpIndex kAlways = kNoOp;  // End of a content that stays for the rest of the step.

/// An operator that runs again for what is computed after its end.
struct LaterReplay {
  OpIndex op = 0;
  OpIndex from = 0;             ///< Needed for a return after this operator only.
  bool is_after_death = false;  ///< The value is dead; otherwise something else was written to it.
};

/// Replays that something needs. Of more than `most` the latest operators are kept; whatever is
/// left out is charged to nobody, which is allowed.
class ReplaySet {
 public:
  explicit ReplaySet(std::size_t most) : most_(most) {}

  void add(const LaterReplay& replay) {
    all_.push_back(replay);
    if (all_.size() >= 2 * most_ + kSlack) settle();
  }

  /// Each operator once, the latest first.
  std::vector<LaterReplay> take() && {
    settle();
    return {all_.begin(), all_.end()};
  }

 private:
  static constexpr std::size_t kSlack = 256;

  /// Each operator once: from the first moment on, and after a death only if all agree on that.
  void settle() {
    std::sort(all_.begin(), all_.end(), [](const LaterReplay& a, const LaterReplay& b) {
      return a.op != b.op ? a.op > b.op : a.from < b.from;
    });
    std::size_t kept = 0;
    for (const LaterReplay& each : all_) {
      if (kept == 0 || all_[kept - 1].op != each.op)
        all_[kept++] = each;
      else if (!each.is_after_death)
        all_[kept - 1].is_after_death = false;
    }
    all_.resize(std::min(kept, most_));
  }

  const std::size_t most_;
  std::vector<LaterReplay> all_;
};

/// What a value holds between two writes.
struct Content {
  ValueIndex value = 0;
  OpIndex begin = 0;  ///< The operator that wrote it.
  OpIndex end = 0;    ///< The last operator before which, or by which, it can be read.
  bool ends_by_death = false;
  /// All writers up to this one may run again, and the birth is one of them.
  bool is_replayable = false;
  /// The last operator before which the writers find what they read, if nothing that cannot be
  /// recomputed has ended meanwhile.
  OpIndex inputs_end = kAlways;
  bool returns = false;  ///< It can be recomputed after its end.
  /// What runs again when it is computed after its end, as far as that is looked at.
  std::vector<LaterReplay> replays;
};

/// Contents of all values, in the order of their writers.
///
///     value        birth    write    write        death
///     contents       | 0 ---- | 1 ---- | 2 -------- |
///
/// A replay asks for contents and not for values: it must find what its first run found. Content i
/// is made by the birth and the first i writes, all of them.
class Contents {
 public:
  Contents(const StepTape& tape, std::size_t most_parents)
      : tape_(tape), most_parents_(most_parents), first_(tape.values.size() + 1) {
    find_writers();
    const PerOp births = made_per_op(tape);
    for (OpIndex op = 0; op < tape.ops.size(); ++op) {
      inputs_.emplace_back();
      for (const TapeUse& use : uses_of(tape_, op)) {
        const std::uint32_t found = before(use.value, op);
        if (found != kNone) inputs_.back().push_back(found);
      }
    }
    for (OpIndex op = 0; op < tape.ops.size(); ++op) {
      for (const TapeUse& use : uses_of(tape_, op))
        if (use.writes) settle(at(use.value, op));
      for (const ValueIndex born : births.of(op)) settle(at(born, op));
    }
  }

  /// Of the value right after operator `op`; kNone for what was carried in and not written yet.
  std::uint32_t after(ValueIndex value, OpIndex op) const {
    return op == kNoOp ? kNone : before(value, op + 1);
  }
  const Content& operator[](std::uint32_t content) const { return contents_[content]; }
  static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

  /// Calls `visit` for the writers of the content, the birth first, as far as they are looked at.
  template <typename Visit>
  void each_writer(std::uint32_t content, Visit visit) const {
    const std::uint32_t first = first_[contents_[content].value];
    for (std::uint32_t i = first; i <= content && i - first < kMostWriters; ++i)
      visit(contents_[i].begin);
  }

  /// What the operator reads, besides carried-in values that nobody has written before.
  const std::vector<std::uint32_t>& inputs(OpIndex op) const { return inputs_[op]; }

 private:
  void find_writers() {
    std::vector<std::vector<OpIndex>> writers(tape_.values.size());
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      const TapeValue& value = tape_.values[i];
      if (value.birth != kCarriedIn && !value.is_shared) writers[i].push_back(value.birth);
    }
    for (OpIndex op = 0; op < tape_.ops.size(); ++op) {
      for (const TapeUse& use : uses_of(tape_, op)) {
        auto& all = writers[use.value];
        // An operator that writes a value by two of its arguments has written it once.
        if (use.writes && (all.empty() || all.back() != op)) all.push_back(op);
      }
    }
    for (ValueIndex i = 0; i < tape_.values.size(); ++i) {
      first_[i] = static_cast<std::uint32_t>(contents_.size());
      // Replays do not reach over the end of the step, so for them survivors last for ever.
      const OpIndex death = tape_.values[i].death == kSurvives ? kAlways : tape_.values[i].death;
      for (std::size_t w = 0; w < writers[i].size(); ++w) {
        const bool is_last = w + 1 == writers[i].size();
        contents_.push_back({.value = i,
                             .begin = writers[i][w],
                             .end = is_last ? death : writers[i][w + 1],
                             .ends_by_death = is_last,
                             .is_replayable = false,
                             .inputs_end = kAlways,
                             .returns = false,
                             .replays = {}});
      }
    }
    first_.back() = static_cast<std::uint32_t>(contents_.size());
  }

  /// Of the value right before operator `op`.
  std::uint32_t before(ValueIndex value, OpIndex op) const {
    const auto begin = contents_.begin() + first_[value];
    const auto end = contents_.begin() + first_[value + 1];
    const auto next = std::lower_bound(
        begin, end, op, [](const Content& content, OpIndex at) { return content.begin < at; });
    return next == begin ? kNone : static_cast<std::uint32_t>(next - contents_.begin() - 1);
  }
  std::uint32_t at(ValueIndex value, OpIndex op) const { return before(value, op + 1); }

  /// What can be said of a content once all earlier ones are known.
  void settle(std::uint32_t index) {
    Content& content = contents_[index];
    const TapeValue& value = tape_.values[content.value];
    const bool is_birth = index == first_[content.value];
    // One link of the chain of writers that may not run again, and no content behind it comes back.
    if (value.birth == kCarriedIn || !tape_.ops[content.begin].is_replayable) return;
    if (!is_birth && !contents_[index - 1].is_replayable) return;
    content.is_replayable = true;
    if (!is_birth) content.inputs_end = contents_[index - 1].inputs_end;
    for (const TapeUse& use : uses_of(tape_, content.begin)) {
      // The content before it, which its own writers bring back: `each_writer` counts these.
      if (use.value == content.value) continue;
      const std::uint32_t input = before(use.value, content.begin);
      // An input that can be recomputed after its end is never missing, only dearer.
      if (input == kNone || !contents_[input].returns)
        content.inputs_end = std::min(content.inputs_end, end_of(use.value, input));
    }
    // What never ends need not come back.
    content.returns = content.end != kAlways && content.inputs_end > content.end;
    if (content.returns && most_parents_ > 0) gather(index);
  }

  OpIndex end_of(ValueIndex value, std::uint32_t content) const {
    if (content != kNone) return contents_[content].end;
    const std::uint32_t first = first_[value];
    if (first != first_[value + 1]) return contents_[first].begin;
    return tape_.values[value].death == kSurvives ? kAlways : tape_.values[value].death;
  }

  void gather(std::uint32_t index) {
    Content& content = contents_[index];
    ReplaySet replays(most_parents_);
    each_writer(index, [&](OpIndex writer) {
      replays.add({writer, 0, content.ends_by_death});
      for (const std::uint32_t input : inputs_[writer]) {
        const Content& read = contents_[input];
        // What is still readable when this content has ended is there, and charges nobody.
        if (read.value == content.value || read.end > content.end) continue;
        for (const LaterReplay& replay : read.replays) replays.add(replay);
      }
    });
    content.replays = std::move(replays).take();
  }

  const StepTape& tape_;
  const std::size_t most_parents_;
  std::vector<std::uint32_t> first_;  ///< Per value, into `contents_`.
  std::vector<Content> contents_;
  std::vector<std::vector<std::uint32_t>> inputs_;  ///< Per operator: contents that it reads.
};

/// What runs again for one interval.
struct Claim {
  std::vector<OpIndex> own;         ///< Writers of the value.
  std::vector<LaterReplay> others;  ///< For parents.
  OpIndex return_before = kNoOp;
};

/// Values that some operator reads that may run again. What no replay reads, no replay brings back
/// (see `rewrite_tape`), so it cannot be dropped where nothing else uses it any more.
std::vector<bool> read_by_replays(const StepTape& tape) {
  std::vector<bool> is_read(tape.values.size(), false);
  for (OpIndex op = 0; op < tape.ops.size(); ++op) {
    if (!tape.ops[op].is_replayable) continue;
    for (const TapeUse& use : uses_of(tape, op)) is_read[use.value] = true;
  }
  return is_read;
}

/// The content that can be recomputed in the interval; kNone if there is none.
std::uint32_t content_to_return(const StepTape& tape, const Contents& contents,
                                const Interval& interval) {
  const OpIndex last = interval.begin;
  const TapeValue& value = tape.values[interval.value];
  const std::size_t end = std::size_t{last} + interval.covered_ops + 1;
  const bool is_in_step =
      end < tape.ops.size() || (interval.end == IntervalEnd::kDies && end == tape.ops.size());
  if (value.birth == kCarriedIn || value.is_shared || !is_in_step) return Contents::kNone;
  const std::uint32_t index = contents.after(interval.value, last);
  if (index == Contents::kNone) return Contents::kNone;
  const Content& content = contents[index];
  return content.is_replayable && content.inputs_end > last ? index : Contents::kNone;
}

Claim claim_of(const Contents& contents, std::uint32_t index, const Interval& interval,
               std::size_t most_parents) {
  Claim claim;
  claim.return_before = contents[index].inputs_end;
  const OpIndex end = interval.begin + interval.covered_ops;
  ReplaySet others(most_parents);
  contents.each_writer(index, [&](OpIndex writer) {
    claim.own.push_back(writer);
    for (const std::uint32_t input : contents.inputs(writer)) {
      const Content& read = contents[input];
      if (read.value == interval.value || read.end > end) continue;
      for (const LaterReplay& replay : read.replays)
        others.add({replay.op, read.end, replay.is_after_death});
    }
  });
  claim.others = std::move(others).take();
  return claim;
}

/// Divides the time of each operator among the pages that claim it.
class Shares {
 public:
  explicit Shares(const StepTape& tape)
      : tape_(tape), makes_(tape.ops.size(), 0), claimed_(tape.ops.size()) {
    for (const TapeValue& value : tape.values)
      if (value.birth != kCarriedIn && !value.is_shared) ++makes_[value.birth];
    for (OpIndex op = 0; op < tape.ops.size(); ++op) {
      for (std::uint32_t i = 0; i < tape.ops[op].use_count; ++i)
        if (tape.uses[tape.ops[op].first_use + i].writes) ++makes_[op];
    }
  }

  void add(const Claim& claim, const Interval& interval) {
    const auto pages = static_cast<double>(interval.pages);
    for (const OpIndex op : claim.own) {
      // Replays for several intervals of one value are several.
      if (is_owned_.insert({interval.value, op}).second) claimed_[op].own += pages;
    }
    for (const LaterReplay& other : claim.others) {
      Pages& claimed = claimed_[other.op];
      (other.is_after_death ? claimed.after_death : claimed.overwritten) += pages;
    }
  }

  RecomputeCost cost(const Claim& claim) const {
    RecomputeCost cost;
    cost.is_possible = true;
    cost.return_before = claim.return_before;
    for (const OpIndex op : claim.own) {
      const Pages& claimed = claimed_[op];
      const double share = time(op) / (is_single(op) ? claimed.own + claimed.overwritten : all(op));
      // The dearest writer is charged at the return, where the linear program knows the moment; the
      // others anywhere in the interval.
      cost.other_writers += std::min(share, cost.at_return);
      cost.at_return = std::max(share, cost.at_return);
    }
    for (const LaterReplay& other : claim.others) {
      const Pages& claimed = claimed_[other.op];
      // One run cannot serve the living value and the dead one, so each of the two sorts of claims
      // has its whole time to divide.
      const bool is_apart = other.is_after_death && is_single(other.op);
      const double pages = is_apart ? claimed.after_death + claimed.overwritten : all(other.op);
      cost.parents.push_back({other.from, time(other.op) / pages});
    }
    std::sort(cost.parents.begin(), cost.parents.end(),
              [](const auto& a, const auto& b) { return a.from < b.from; });
    return cost;
  }

 private:
  struct Pages {
    double own = 0.0;
    double overwritten = 0.0;
    double after_death = 0.0;
  };

  double time(OpIndex op) const { return seconds(tape_.ops[op].time); }
  /// Before the death of the one value that it makes it serves the living, later the dead.
  bool is_single(OpIndex op) const { return makes_[op] == 1; }
  double all(OpIndex op) const {
    return claimed_[op].own + claimed_[op].overwritten + claimed_[op].after_death;
  }

  const StepTape& tape_;
  std::vector<std::uint32_t> makes_;  ///< Values that an operator makes or writes.
  std::vector<Pages> claimed_;
  std::set<std::pair<ValueIndex, OpIndex>> is_owned_;
};

}  // namespace

std::vector<RecomputeCost> recompute_costs(const StepTape& tape, const TouchIntervals& touches,
                                           const std::vector<bool>& is_counted,
                                           std::size_t most_parents) {
  const Contents contents(tape, most_parents);
  Shares shares(tape);
  std::vector<RecomputeCost> costs(touches.intervals.size());
  std::vector<std::pair<std::uint32_t, Claim>> claims;
  const std::vector<bool> is_read = read_by_replays(tape);
  for (std::uint32_t i = 0; i < costs.size(); ++i) {
    const Interval& interval = touches.intervals[i];
    // What dies unused may be dropped for nothing only if a plan could drop it at all.
    if (interval.end != IntervalEnd::kUsed && !is_read[interval.value]) continue;
    const std::uint32_t index = content_to_return(tape, contents, interval);
    if (index == Contents::kNone) continue;
    costs[i].is_possible = true;  // For what dies without another use: free.
    // An interval that no cut meets asks for nothing, and a claim of it would only make those of
    // others smaller.
    if (!is_counted[i] || interval.end != IntervalEnd::kUsed) continue;
    claims.emplace_back(i, claim_of(contents, index, interval, most_parents));
    shares.add(claims.back().second, interval);
  }
  for (const auto& [i, claim] : claims) costs[i] = shares.cost(claim);
  return costs;
}

WalkCosts walk_costs(const StepTape& tape, const TouchIntervals& touches,
                     const std::vector<RecomputeCost>& costs) {
  WalkCosts walk;
  walk.class_before_use.assign(tape.uses.size(), WalkCosts::kOnlyRead);
  walk.return_before_use.assign(tape.uses.size(), kNoOp);
  walk.drops_after_use.assign(tape.uses.size(), false);
  walk.drops_after_birth.assign(tape.values.size(), false);
  const auto each_use = [&](OpIndex op, ValueIndex value, auto visit) {
    for (std::uint32_t i = 0; i < tape.ops[op].use_count; ++i) {
      const std::uint32_t use = tape.ops[op].first_use + i;
      if (tape.uses[use].value == value) visit(use);
    }
  };
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < costs.size(); ++i)
    if (costs[i].is_possible) order.push_back(i);
  const auto cost_of = [&](std::uint32_t i) { return costs[i].at_return + costs[i].other_writers; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return cost_of(a) < cost_of(b); });
  for (const std::uint32_t i : order) {
    const Interval& interval = touches.intervals[i];
    each_use(interval.begin, interval.value,
             [&](std::uint32_t use) { walk.drops_after_use[use] = true; });
    if (tape.values[interval.value].birth == interval.begin)
      walk.drops_after_birth[interval.value] = true;
    if (interval.end != IntervalEnd::kUsed) continue;
    // Windows look at pages by cost, cheapest first, for each of thousands of windows: so they are
    // sorted into a limited number of classes once.
    const bool is_new =
        walk.class_seconds.empty() || cost_of(i) > walk.class_seconds.back() * kClassRatio;
    if (is_new && walk.class_seconds.size() < kMostClasses)
      walk.class_seconds.push_back(cost_of(i));
    each_use(interval.begin + interval.covered_ops + 1, interval.value, [&](std::uint32_t use) {
      walk.class_before_use[use] = static_cast<std::uint8_t>(walk.class_seconds.size() - 1);
      walk.return_before_use[use] = costs[i].return_before;
    });
  }
  return walk;
}

}  // namespace spillway::planner
