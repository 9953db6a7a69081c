#include "downset_cuts.h"

#include <algorithm>

#include "plain_figures.h"

namespace spillway::planner {
namespace {

/// Sums of the same times in another order differ in the last bits.
constexpr double kRounding = 1e-12;
/// What looking at a pair costs, in comparisons of two downsets.
constexpr std::uint64_t kStepsPerCost = 100;

/// A downset at which stages can end so far, and what the slowest of them takes.
struct Reached {
  std::uint32_t set = 0;
  double worst = 0.0;
};

/// One that may be followed by a stage, and what both take at least.
struct Begin {
  double least = 0.0;
  std::uint32_t place = 0;  ///< In the list of reached ones.
};

class DownsetProgram {
 public:
  DownsetProgram(const SetCosts& costs, const Downsets& sets, double below,
                 std::uint64_t most_steps)
      : costs_(costs), sets_(sets), below_(below), left_(most_steps) {
    double speed = 0.0;
    speed_before_.push_back(0.0);
    for (std::uint32_t k = 0; k < costs.stages(); ++k)
      speed_before_.push_back(speed += 1.0 / costs.slowdown(k));
  }

  DownsetSearch run() {
    DownsetSearch search;
    std::vector<Reached> reached{{0, 0.0}};
    for (std::uint32_t k = 0; k < costs_.stages(); ++k) {
      reached = next_stage(k, reached);
      if (reached.empty()) break;
    }
    // Cut short, it has proven nothing: what it has not looked at may be faster.
    search.is_finished = left_ > 0;
    if (!search.is_finished || reached.empty()) return search;
    DownsetCuts cuts{{reached.front().set}, reached.front().worst};
    for (std::uint32_t k = costs_.stages(); k-- > 0;)
      cuts.sets.push_back(begins_[k][cuts.sets.back()]);
    std::reverse(cuts.sets.begin(), cuts.sets.end());
    search.best = std::move(cuts);
    return search;
  }

 private:
  /// Downsets at which stage k can end, by their time.
  std::vector<Reached> next_stage(std::uint32_t k, const std::vector<Reached>& reached) {
    begins_.emplace_back(sets_.count(), 0);
    std::vector<Reached> next;
    const std::uint32_t whole = sets_.count() - 1;
    const bool is_last = k + 1 == costs_.stages();
    for (std::uint32_t set = is_last ? whole : 1; set <= whole && left_ > 0; ++set) {
      if (!may_end(k, set)) continue;
      const Begin best = best_begin(k, set, reached);
      if (best.least >= below_) continue;
      next.push_back({set, best.least});
      begins_.back()[set] = reached[best.place].set;
    }
    // `best_begin` leaves out both ends of the list by its times.
    std::stable_sort(next.begin(), next.end(), [&](const Reached& one, const Reached& other) {
      return costs_.layer_seconds(one.set) < costs_.layer_seconds(other.set);
    });
    return next;
  }

  /// Enough units before and behind, and not too much work for the stages there.
  bool may_end(std::uint32_t k, std::uint32_t set) const {
    const std::uint32_t whole = sets_.count() - 1;
    const std::uint32_t behind = costs_.stages() - k - 1;
    if (sets_.size(set) < k + 1 || sets_.size(whole) - sets_.size(set) < behind) return false;
    const double speed_behind = speed_before_.back() - speed_before_[k + 1];
    const double done = costs_.layer_seconds(set);
    const double left = costs_.layer_seconds(whole) - done;
    const double most = below_ * (1.0 + kRounding);
    return done <= most * speed_before_[k + 1] &&
           (behind == 0 || left <= most * speed_behind + kRounding * done);
  }

  Begin best_begin(std::uint32_t k, std::uint32_t set, const std::vector<Reached>& reached) {
    const double end = costs_.layer_seconds(set);
    const double longest = below_ * (1.0 + kRounding) / costs_.slowdown(k) + kRounding * end;
    // What is before that leaves this stage more work than it may have.
    const auto first = std::partition_point(
        reached.begin(), reached.end(),
        [&](const Reached& each) { return costs_.layer_seconds(each.set) < end - longest; });
    std::vector<Begin> begins;
    for (auto each = first; each != reached.end(); ++each) {
      spend(1);
      const double seconds = end - costs_.layer_seconds(each->set);
      // From here on they have more work than the set itself, and lie in it no more.
      if (seconds < -kRounding * end) break;
      if (sets_.size(each->set) >= sets_.size(set)) continue;
      const double least = std::max(each->worst, seconds * costs_.slowdown(k) * (1.0 - kRounding));
      if (least < below_ && sets_.is_inside(each->set, set))
        begins.push_back({least, static_cast<std::uint32_t>(each - reached.begin())});
    }
    // The likeliest first, since exact costs are dear and a good one rules out the rest.
    std::sort(begins.begin(), begins.end(), [](const Begin& one, const Begin& other) {
      return one.least != other.least ? one.least < other.least : one.place < other.place;
    });
    Begin best{below_, 0};
    for (const Begin& begin : begins) {
      if (begin.least >= best.least || left_ == 0) break;
      spend(kStepsPerCost);
      const Reached& from = reached[begin.place];
      const double seconds = std::max(from.worst, costs_.least_seconds(from.set, set, k));
      if (seconds < best.least) best = {seconds, begin.place};
    }
    return best;
  }

  void spend(std::uint64_t steps) { left_ -= std::min(left_, steps); }

  const SetCosts& costs_;
  const Downsets& sets_;
  const double below_;
  std::uint64_t left_;
  std::vector<double> speed_before_;                ///< Of the stages before each one.
  std::vector<std::vector<std::uint32_t>> begins_;  ///< By stage and downset.
};

}  // namespace

DownsetSearch least_time_downsets(const SetCosts& costs, const Downsets& sets, double below,
                                  std::uint64_t most_steps) {
  constexpr std::uint64_t kMostCells = 20'000'000;  // Some 80 MB.
  if (std::uint64_t{sets.count()} * costs.stages() > kMostCells) return {std::nullopt, false};
  return DownsetProgram(costs, sets, below, most_steps).run();
}

}  // namespace spillway::planner
