#include "version_count.h"

#include <algorithm>

namespace spillway::planner {
namespace {

/// The versions of one copy, in the order in which its steps make them. Version 0 is there.
class CopyVersions {
 public:
  explicit CopyVersions(const Schedule& schedule)
      : rule_(schedule.weight_rule),
        micro_batches_(schedule.micro_batches),
        used_by_(schedule.all_micro_batches(), 0) {}

  /// Told of all steps first: the last micro-batches of the batches of updates.
  void expect_step(std::uint32_t last_micro_batch) { batch_ends_.push_back(last_micro_batch); }

  void see(const Action& action, std::size_t position) {
    if (action.kind == ActionKind::kStep) {
      created_.push_back(position);
      used_until_.push_back(0);
      return;
    }
    auto& version = used_by_[std::size_t{action.replica} * micro_batches_ + action.micro_batch];
    if (action.kind == ActionKind::kForward) version = version_for(action.micro_batch);
    used_until_[version] = position + 1;
  }

  /// The lives of all versions: from the first position to the last one, which is not part of it.
  template <typename Visit>
  void for_each_life(std::size_t list_length, Visit visit) const {
    for (std::size_t version = 0; version < created_.size(); ++version) {
      const bool is_newest = version + 1 == created_.size();
      const std::size_t replaced = is_newest ? list_length : created_[version + 1];
      visit(created_[version], std::max(replaced, used_until_[version]));
    }
  }

 private:
  std::uint32_t version_for(std::uint32_t micro_batch) const {
    const auto newest = static_cast<std::uint32_t>(created_.size() - 1);
    if (rule_ == WeightRule::kNewest) return newest;
    const auto batch = static_cast<std::uint32_t>(
        std::lower_bound(batch_ends_.begin(), batch_ends_.end(), micro_batch) -
        batch_ends_.begin());
    return std::min(newest, batch == 0 ? 0 : batch - 1);
  }

  WeightRule rule_;
  std::uint32_t micro_batches_;
  std::vector<std::uint32_t> used_by_;     // By micro-batch of all replicas.
  std::vector<std::uint32_t> batch_ends_;  // Ascending in lists that make sense.
  std::vector<std::size_t> created_{0};
  std::vector<std::size_t> used_until_{0};
};

}  // namespace

VersionCount count_versions(const Schedule& schedule, const WeightCopies& copies) {
  VersionCount count;
  std::vector<std::vector<std::uint32_t>> copies_of(schedule.ranks.size());
  for (std::uint32_t copy = 0; copy < copies.size(); ++copy)
    copies_of[copies[copy].rank].push_back(copy);
  count.peaks.resize(copies.size());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const auto& actions = schedule.ranks[rank];
    auto& rank_changes = count.changes.emplace_back(actions.size() + 1, 0);
    for (const std::uint32_t copy : copies_of[rank]) {
      const auto is_mine = [&](const Action& action) {
        return action.stage == copies[copy].stage &&
               (is_model_compute(action.kind) || action.kind == ActionKind::kStep);
      };
      CopyVersions versions(schedule);
      for (const Action& action : actions)
        if (is_mine(action) && action.kind == ActionKind::kStep)
          versions.expect_step(action.micro_batch);
      for (std::size_t i = 0; i < actions.size(); ++i)
        if (is_mine(actions[i])) versions.see(actions[i], i);
      std::vector<std::int32_t> changes(actions.size() + 1, 0);
      versions.for_each_life(actions.size(), [&](std::size_t begin, std::size_t end) {
        ++changes[begin];
        --changes[end];
      });
      std::int32_t now = 0;
      std::int32_t peak = 0;
      for (std::size_t i = 0; i < changes.size(); ++i) {
        now += changes[i];
        peak = std::max(peak, now);
        rank_changes[i] += changes[i];
      }
      count.peaks[copy] = static_cast<std::uint32_t>(peak);
    }
  }
  return count;
}

}  // namespace spillway::planner
