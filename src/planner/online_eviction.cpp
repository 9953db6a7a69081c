#include "online_eviction.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "replay_walk.h"
#include "search_limits.h"
#include "touch_intervals.h"

namespace spillway::planner {

using profile::kCarriedIn;
using profile::kNoValue;
using profile::TapeUse;

namespace {

constexpr std::uint32_t kNoClass = static_cast<std::uint32_t>(-1);
constexpr double kShortestStaleness = 1e-9;  // Seconds; right behind its last use a value has none.

// States of a value here, besides what the tape says of it:
//
//     present, version = writes in place      what operators find      -> evicted for room
//     evicted, member of a class              costs its neighbours     -> restored by its makers
//     pinned                                  an input of what runs    -> cannot be evicted
//
// Restoring stops at the version that was asked for. Where a later one is there, it goes first: a
// replay must find its inputs as the first run did.
class OnlineEviction {
 public:
  /// Keeps references.
  OnlineEviction(const StepTape& tape, const Recomputation& all, std::uint32_t budget_pages,
                 FreedValues freed, const StopCheck& should_stop)
      : tape_(tape),
        all_(all),
        budget_(budget_pages),
        freed_(freed),
        should_stop_(should_stop),
        states_(tape.values.size()),
        found_version_(tape.uses.size(), 0),
        makers_(tape.values.size()),
        births_(births_per_op(tape)),
        deaths_(deaths_per_op(tape)),
        neighbours_(tape.values.size()),
        place_(tape.values.size(), 0) {
    for (ValueIndex i = 0; i < tape.values.size(); ++i) {
      states_[i].evicted_class = kNoClass;
      if (tape.values[i].birth != kCarriedIn) {
        makers_[i].push_back(tape.values[i].birth);
      } else {
        // What is carried in was made by no operator of this step, so it can never be brought back
        // and always stays; what that leaves too full is for swaps, which this policy does not
        // know.
        enter(i);
      }
    }
    std::vector<std::uint32_t> version(tape.values.size(), 0);
    for (OpIndex op = 0; op < tape.ops.size(); ++op) {
      const auto uses = uses_of(tape_, op);
      for (std::size_t i = 0; i < uses.size(); ++i)
        found_version_[tape.ops[op].first_use + i] = version[uses[i].value];
      for (const TapeUse& use : uses) {
        if (!use.writes) continue;
        ++version[use.value];
        makers_[use.value].push_back(op);
      }
      for (const ValueIndex born : births_.of(op)) {
        // Shared pages are never recomputed, so they are nobody's price.
        if (tape_.values[born].is_shared) continue;
        for (const TapeUse& use : uses) {
          neighbours_[use.value].push_back(born);
          neighbours_[born].push_back(use.value);
        }
      }
    }
  }

  /// What ran again, as far as it went: stops evicting when nothing helps, when it runs in circles
  /// and when told to.
  std::vector<Replay> run() {
    for (now_ = 0; now_ < tape_.ops.size(); ++now_) run_op(now_);
    return std::move(replays_);
  }

 private:
  struct State {
    bool is_present = false;
    std::uint32_t version = 0;  ///< In-place writes that what is present holds.
    std::uint32_t pins = 0;
    double used_at = 0.0;
    double compute = 0.0;  ///< Seconds of the operators that have made it so far.
    std::uint32_t evicted_class = 0;
    OpIndex droppable_until = 0;  ///< Cached answer of `can_drop` for this next use.
    bool is_droppable = false;
  };

  /// An operator whose inputs are brought in, one after the other.
  struct Provision {
    OpIndex op = 0;
    std::size_t use = 0;        ///< The input whose turn it is.
    bool is_restoring = false;  ///< Operators run again for it.
    std::uint32_t maker = 0;    ///< Of those that have made it, the next one.
  };

  /// Brings the inputs of an operator in and holds them, with room for what it makes. What has to
  /// run again first has inputs of its own, and so on: as deep as the step is long, so not by
  /// recursion.
  void provide_for(OpIndex op) {
    std::vector<Provision> open{{op}};
    for (;;) {
      if (const auto maker = next_maker(open.back())) {
        open.push_back({*maker});
        continue;
      }
      const OpIndex provided = open.back().op;
      make_room(tape_.ops[provided].inside_peak_pages);
      open.pop_back();
      if (open.empty()) return;
      replay(provided);
    }
  }

  /// The operator that has to run again next before all inputs are there.
  std::optional<OpIndex> next_maker(Provision& provision) {
    const auto uses = uses_of(tape_, provision.op);
    for (; provision.use < uses.size(); ++provision.use) {
      const ValueIndex value = uses[provision.use].value;
      const std::uint32_t version =
          found_version_[tape_.ops[provision.op].first_use + provision.use];
      State& state = states_[value];
      if (!provision.is_restoring) {
        // An input is pinned before the others are looked for, so that making room for these cannot
        // take it away again.
        provision.is_restoring = begin_restoring(value, version);
        provision.maker = state.is_present ? state.version + 1 : 0;
        ++state.pins;
      }
      while (provision.is_restoring && provision.maker <= version) {
        const std::uint32_t next = provision.maker++;
        // What it is made of may have brought it this far.
        if (!state.is_present || state.version < next) return makers_[value][next];
      }
      provision.is_restoring = false;
    }
    return std::nullopt;
  }

  /// Whether the value is not in the state in which an operator found it; what holds later writes
  /// goes. What `can_drop` promised holds for all that was evicted; the others are there.
  bool begin_restoring(ValueIndex value, std::uint32_t version) {
    const State& state = states_[value];
    if (tape_.values[value].birth == kCarriedIn) return false;
    if (state.is_present && state.version == version) return false;
    if (state.is_present && state.version > version) evict(value);
    if (is_to_leave(value)) visitors_.push_back(value);
    return true;
  }

  /// Freed by the program, and not to stay for others.
  bool is_to_leave(ValueIndex value) const {
    return freed_ == FreedValues::kLeave && tape_.values[value].death < now_;
  }

  void run_op(OpIndex op) {
    provide_for(op);
    const double time = seconds(tape_.ops[op].time);
    clock_ += time;
    for (const TapeUse& use : uses_of(tape_, op)) {
      State& state = states_[use.value];
      --state.pins;
      state.used_at = clock_;
      if (!use.writes) continue;
      ++state.version;
      state.compute += time;
    }
    for (const ValueIndex born : births_.of(op)) {
      states_[born].compute = time;
      enter(born);
    }
    // What has died counts as evicted: values made of it cost that much more.
    // Held until the operator that asked has run; then they are evicted, not forgotten: others may
    // ask again.
    for (const ValueIndex visitor : visitors_)
      if (states_[visitor].is_present) evict(visitor);
    visitors_.clear();
    forget_dead(op);
  }

  /// Its inputs are there and held.
  void replay(OpIndex op) {
    replays_.push_back({now_, op});
    is_stuck_ = is_stuck_ || replays_.size() > kMostReplaysPerOp * tape_.ops.size();
    clock_ += seconds(tape_.ops[op].time);
    for (const TapeUse& use : uses_of(tape_, op)) {
      State& state = states_[use.value];
      --state.pins;
      state.used_at = clock_;
      if (use.writes) ++state.version;
    }
    for (const ValueIndex born : births_.of(op)) {
      if (states_[born].is_present || tape_.values[born].is_shared) continue;
      enter(born);
      if (is_to_leave(born)) visitors_.push_back(born);
    }
  }

  void make_room(std::uint32_t pages) {
    while (!is_stuck_ && held_ + pages > budget_) {
      // Once stuck it evicts no more, and the rest of the step goes on above the budget: whoever
      // asked swaps what is too much.
      is_stuck_ = is_told(should_stop_);
      if (is_stuck_ || !evict_best()) break;
    }
  }

  bool evict_best() {
    ValueIndex best = kNoValue;
    double least = 0.0;
    for (const ValueIndex value : resident_) {
      if (value == kNoValue || !is_evictable(value)) continue;
      const double own = score(value);
      // Of equal ones the first that came, so that results do not depend on how gaps were closed.
      if (best != kNoValue && own >= least) continue;
      best = value;
      least = own;
    }
    if (best == kNoValue) return false;
    evict(best);
    return true;
  }

  bool is_evictable(ValueIndex value) {
    State& state = states_[value];
    // Before the first operator there is none behind which something could have left.
    if (state.pins > 0 || now_ == 0) return false;
    if (tape_.values[value].death < now_) return true;
    const OpIndex next = all_.next_use(value, now_ - 1);
    if (next == kNoOp) return false;
    if (state.droppable_until != next) {
      state.droppable_until = next;
      // Asking walks through the step, and nothing changes the answer before the next use.
      state.is_droppable = walk_.can_drop(value, now_ - 1);
    }
    return state.is_droppable;
  }

  double score(ValueIndex value) {
    const State& state = states_[value];
    double cost = state.compute;
    seen_.clear();
    for_each_neighbour(value, [&](std::uint32_t cls) {
      const std::uint32_t top = root(cls);
      // Values that were evicted together cost their replays once, by whichever of them they are
      // met.
      if (std::find(seen_.begin(), seen_.end(), top) != seen_.end()) return;
      seen_.push_back(top);
      cost += class_cost_[top];
    });
    // The clock is that of operators: waiting for transfers makes nothing stale here.
    const double staleness = std::max(kShortestStaleness, clock_ - state.used_at);
    return cost / (tape_.values[value].pages * staleness);
  }

  void evict(ValueIndex value) {
    State& state = states_[value];
    state.is_present = false;
    held_ -= tape_.values[value].pages;
    if (tape_.values[value].birth == kCarriedIn) return;
    leave_gap(value);
    state.evicted_class = static_cast<std::uint32_t>(parent_.size());
    parent_.push_back(state.evicted_class);
    class_cost_.push_back(state.compute);
    for_each_neighbour(value, [&](std::uint32_t cls) {
      const std::uint32_t other = root(cls);
      const std::uint32_t own = root(state.evicted_class);
      if (other == own) return;
      // By whichever joins last: with halving of the paths, finding a root stays cheap without
      // ranks.
      parent_[other] = own;
      class_cost_[own] += class_cost_[other];
    });
  }

  void enter(ValueIndex value) {
    State& state = states_[value];
    if (state.evicted_class != kNoClass) {
      double& cost = class_cost_[root(state.evicted_class)];
      // Classes are joined and never divided, as in the paper: a value that returns only takes its
      // own time with it, which keeps the score cheap and makes it an estimate.
      cost = std::max(0.0, cost - state.compute);
      state.evicted_class = kNoClass;
    }
    state.is_present = true;
    state.version = 0;
    state.used_at = clock_;
    held_ += tape_.values[value].pages;
    if (tape_.values[value].birth == kCarriedIn) return;
    place_[value] = resident_.size();
    resident_.push_back(value);
  }

  /// The latest one first.
  void forget_dead(OpIndex op) {
    std::vector<ValueIndex> dead;
    for (const ValueIndex value : deaths_.of(op))
      if (states_[value].is_present) dead.push_back(value);
    std::sort(dead.begin(), dead.end(),
              [this](ValueIndex a, ValueIndex b) { return place_[a] > place_[b]; });
    for (const ValueIndex value : dead) evict(value);
  }

  /// Closes all gaps once they are half of the list, so that each costs the same in the end.
  void leave_gap(ValueIndex value) {
    resident_[place_[value]] = kNoValue;
    // Taking a value out of the middle would move all behind it, for each eviction.
    if (++gaps_ * 2 <= resident_.size()) return;
    std::erase(resident_, kNoValue);
    gaps_ = 0;
    for (std::size_t i = 0; i < resident_.size(); ++i) place_[resident_[i]] = i;
  }

  template <typename Visit>
  void for_each_neighbour(ValueIndex value, Visit visit) const {
    for (const ValueIndex other : neighbours_[value])
      if (states_[other].evicted_class != kNoClass) visit(states_[other].evicted_class);
  }

  std::uint32_t root(std::uint32_t cls) {
    while (parent_[cls] != cls) cls = parent_[cls] = parent_[parent_[cls]];
    return cls;
  }

  const StepTape& tape_;
  const Recomputation& all_;
  ReplayWalk walk_{all_};
  const std::uint32_t budget_;
  const FreedValues freed_;
  const StopCheck& should_stop_;
  std::vector<State> states_;
  std::vector<std::uint32_t> found_version_;  ///< Per use.
  std::vector<std::vector<OpIndex>> makers_;  ///< Per value: birth, then writes.
  const PerOp births_;
  const PerOp deaths_;
  std::vector<std::vector<ValueIndex>> neighbours_;  ///< Values made from it or that it is made of.
  /// What the step makes and is there, in the order in which it came, with gaps (kNoValue).
  std::vector<ValueIndex> resident_;
  std::size_t gaps_ = 0;
  std::vector<std::size_t> place_;    ///< Per value that is among them.
  std::vector<ValueIndex> visitors_;  ///< Freed ones that are to leave behind this operator.
  std::vector<std::uint32_t> parent_;
  std::vector<double> class_cost_;
  std::vector<std::uint32_t> seen_;
  std::vector<Replay> replays_;
  OpIndex now_ = 0;
  std::uint64_t held_ = 0;
  double clock_ = 0.0;
  bool is_stuck_ = false;
};

}  // namespace

std::vector<Replay> evicted_on_line(const StepTape& tape, const Recomputation& all,
                                    std::uint32_t budget_pages, FreedValues freed,
                                    const StopCheck& should_stop) {
  return OnlineEviction(tape, all, budget_pages, freed, should_stop).run();
}

}  // namespace spillway::planner
