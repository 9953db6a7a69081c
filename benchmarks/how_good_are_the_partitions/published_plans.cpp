#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "figures.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::quality {

using namespace partition;
using nlohmann::ordered_json;

namespace {

constexpr std::uint32_t kStages = 8;
constexpr double kBlockBytes = 1000.0;

/// Blocks of each stage, and the share of them that is recomputed. Repository hku-systems/vpipe.
struct PublishedPlan {
  const char* name;
  std::array<double, kStages> blocks;
  std::array<double, kStages> recomputed;
};
constexpr PublishedPlan kPlans[] = {
    {"vPipe", {11, 11, 12, 12, 13, 13, 14, 11}, {1, .85, .8, .6, .5, .2, 0, 0}},
    {"PipeDream", {11, 12, 13, 13, 13, 13, 12, 10}, {0, 0, 0, 0, 0, 0, 0, 0}},
};

/// Seconds per micro-batch and blocks' worth of stash, by stage.
struct Row {
  std::vector<double> blocks, recomputed, seconds, stash;

  ordered_json json(const char* plan, const char* whose) const {
    return {{"plan", plan},       {"whose", whose}, {"blocks", blocks}, {"recomputed", recomputed},
            {"seconds", seconds}, {"stash", stash}};
  }
};

Row published(const PublishedPlan& plan) {
  Row row;
  for (std::uint32_t k = 0; k < kStages; ++k) {
    row.blocks.push_back(plan.blocks[k]);
    row.recomputed.push_back(plan.recomputed[k]);
    row.seconds.push_back(plan.blocks[k] * (3 + plan.recomputed[k]));
    row.stash.push_back((1 - plan.recomputed[k]) * plan.blocks[k] * (kStages - k));
  }
  return row;
}

Row estimate_row(const PartitionEstimate& estimate) {
  Row row;
  for (const StageEstimate& stage : estimate.stages) {
    const double blocks = stage.last_layer - stage.first_layer + 1;
    row.blocks.push_back(blocks);
    row.recomputed.push_back(static_cast<double>(stage.recomputed.size()) / blocks);
    row.seconds.push_back(stage.seconds);
    row.stash.push_back(static_cast<double>(stage.memory.count()) / kBlockBytes);
  }
  return row;
}

Cuts cuts_of(const PublishedPlan& plan) {
  Cuts cuts{0};
  for (const double blocks : plan.blocks)
    cuts.push_back(cuts.back() + static_cast<std::uint32_t>(blocks));
  return cuts;
}

double most(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

Bytes gigabytes(std::uint64_t count) { return Bytes(count * 1'000'000'000); }

/// Of the slowest stage; null where nothing fits.
ordered_json seconds_of(const Partitioner& partitioner, const Workload& workload,
                        const Setting& setting) {
  try {
    const SegmentCosts costs(problem_of(workload, setting));
    return evaluate(costs, partitioner.cut(costs)).seconds;
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

ordered_json published_plans() {
  const Workload bert48{vpipe_chain(), false, false};
  ordered_json rows = ordered_json::array();
  for (const PublishedPlan& plan : kPlans) {
    const Row row = published(plan);
    Setting setting{.stages = kStages, .memory_reduction = MemoryReduction::kRecompute};
    const SegmentCosts endless(problem_of(bert48, setting));
    setting.memory = Bytes(static_cast<std::uint64_t>(std::llround(kBlockBytes * most(row.stash))));
    const SegmentCosts costs(problem_of(bert48, setting));
    const double seconds = most(row.seconds);
    rows.push_back(row.json(plan.name, "published"));
    rows.push_back(
        estimate_row(evaluate(costs, cuts_of(plan))).json(plan.name, "its cuts, our actions"));
    rows.push_back(estimate_row(evaluate(costs, partitioners().front().cut(costs)))
                       .json(plan.name, "ours at its stash"));
    const Cuts frugal = frugal_cuts(endless, seconds)->cuts;
    rows.push_back(estimate_row(evaluate_memory(endless, frugal, seconds))
                       .json(plan.name, "ours at its time"));
  }
  return rows;
}

ordered_json piper_optima(const Workload& bert32) {
  ordered_json rows = ordered_json::array();
  for (const std::uint32_t stages : {4U, 8U, 16U, 32U}) {
    for (const std::uint64_t memory : {6U, 8U, 12U, 20U, 40U}) {
      const Setting alone{stages, gigabytes(memory), MemoryReduction::kRecompute};
      const Setting swapping{stages, gigabytes(memory), MemoryReduction::kSwapAndRecompute};
      ordered_json row{{"stages", stages},
                       {"gigabytes", memory},
                       {"piper", seconds_of(partitioner_named("piper"), bert32, alone)},
                       {"ours", seconds_of(partitioners().front(), bert32, alone)},
                       {"ours_with_swaps", seconds_of(partitioners().front(), bert32, swapping)}};
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace spillway::quality
