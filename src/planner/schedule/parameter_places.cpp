#include "parameter_places.h"

#include <algorithm>

namespace spillway::planner_schedule {
namespace {

/// The versions of one copy, in the order in which its steps make them. Version 0 is there.
class CopyVersions {
 public:
  CopyVersions() : lives_(1) {}

  /// Told of all steps first: the last micro-batches of the batches of updates.
  void expect_step(std::uint32_t last_micro_batch) { batch_ends_.push_back(last_micro_batch); }

  void step(std::size_t position) { lives_.push_back({position, 0}); }
  void use(std::uint32_t version, std::size_t position) { lives_[version].end = position + 1; }

  std::uint32_t version_for(std::uint32_t micro_batch, WeightRule rule) const {
    const auto newest = static_cast<std::uint32_t>(lives_.size() - 1);
    if (rule == WeightRule::kNewest) return newest;
    // Batch k could see the updates of all k batches before it, at best. One update less is there
    // whatever is in flight, and two versions suffice.
    const auto batch = static_cast<std::uint32_t>(
        std::lower_bound(batch_ends_.begin(), batch_ends_.end(), micro_batch) -
        batch_ends_.begin());
    return std::min(newest, batch == 0 ? 0 : batch - 1);
  }

  /// Adds what changes before each action of an action list of this length; returns the most at
  /// once.
  std::uint32_t count(std::size_t list_length, std::vector<std::int32_t>& changes) {
    std::vector<std::size_t> ends;
    for (std::size_t version = 0; version < lives_.size(); ++version) {
      const bool is_newest = version + 1 == lives_.size();
      const std::size_t replaced = is_newest ? list_length : lives_[version + 1].begin;
      // A step works in place unless a backward still needs the values before it.
      ends.push_back(std::max(replaced, lives_[version].end));
      ++changes[lives_[version].begin];
      --changes[ends.back()];
    }
    std::sort(ends.begin(), ends.end());
    // Versions begin in order, so the sorted ends tell how many are there at once.
    std::size_t peak = 0;
    std::size_t over = 0;
    for (std::size_t begun = 1; begun <= lives_.size(); ++begun) {
      while (over < ends.size() && ends[over] <= lives_[begun - 1].begin) ++over;
      peak = std::max(peak, begun - over);
    }
    return static_cast<std::uint32_t>(peak);
  }

 private:
  struct Life {
    std::size_t begin = 0;
    std::size_t end =
        0;  // Behind its last use; that of the newest one is the end of the action list.
  };

  std::vector<std::uint32_t> batch_ends_;  // Ascending in action lists that make sense.
  std::vector<Life> lives_;
};

}  // namespace

// Once over each action list, however many stages a rank has.
VersionCount count_versions(const Schedule& schedule, const WeightCopies& copies) {
  VersionCount count;
  count.peaks.resize(copies.size());
  std::vector<CopyVersions> versions(copies.size());
  std::vector<std::uint32_t> used_by(schedule.all_micro_batches() * schedule.stages, 0);
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank) {
    const auto& actions = schedule.ranks[rank];
    count.changes.emplace_back(actions.size() + 1, 0);
    for (const Action& action : actions)
      if (action.kind == ActionKind::kStep)
        versions[copies.at(rank, action.stage)].expect_step(action.micro_batch);
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const Action& action = actions[i];
      if (action.kind != ActionKind::kStep && !schedule::is_model_compute(action.kind)) continue;
      CopyVersions& mine = versions[copies.at(rank, action.stage)];
      if (action.kind == ActionKind::kStep) {
        mine.step(i);
        continue;
      }
      const std::size_t pass = std::size_t{action.replica} * schedule.stages + action.stage;
      // A backward uses what its forward has used, whatever was stepped in between.
      std::uint32_t& version = used_by[pass * schedule.micro_batches + action.micro_batch];
      if (action.kind == ActionKind::kForward)
        version = mine.version_for(action.micro_batch, schedule.weight_rule);
      mine.use(version, i);
    }
  }
  for (std::uint32_t copy = 0; copy < copies.size(); ++copy) {
    const std::uint32_t rank = copies[copy].rank;
    count.peaks[copy] = versions[copy].count(schedule.ranks[rank].size(), count.changes[rank]);
  }
  return count;
}

ParameterPlaces::ParameterPlaces(const Schedule& schedule, const WeightCopies& copies,
                                 std::span<const StageCosts> stages)
    : is_resident(schedule::resident_at_start(schedule, copies)),
      bytes(schedule.ranks.size(), 0.0),
      gradients(schedule.ranks.size(), 0.0),
      optimizer_states(schedule.ranks.size(), 0.0) {
  std::vector<bool> is_stepped(copies.size(), false);
  for (std::uint32_t rank = 0; rank < schedule.rank_count(); ++rank)
    for (const Action& action : schedule.ranks[rank])
      if (action.kind == ActionKind::kStep) is_stepped[copies.at(rank, action.stage)] = true;
  const VersionCount versions = count_versions(schedule, copies);
  for (std::uint32_t copy = 0; copy < copies.size(); ++copy) {
    const StageCosts& stage = stages[copies[copy].stage];
    // All versions that will be needed at once have their room from the begin on. A copy that comes
    // later counts when it comes.
    const std::uint32_t held = versions.peaks[copy] - (is_resident[copy] ? 0 : 1);
    const std::uint32_t rank = copies[copy].rank;
    bytes[rank] += count_of(stage.weights) * held;
    gradients[rank] += count_of(stage.gradients);
    // A copy that is not stepped is borrowed: the states are with its owner.
    if (is_stepped[copy]) optimizer_states[rank] += count_of(stage.optimizer_state);
  }
  for (std::uint32_t rank = 0; rank < bytes.size(); ++rank)
    bytes[rank] += gradients[rank] + optimizer_states[rank];
}

}  // namespace spillway::planner_schedule
