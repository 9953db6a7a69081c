// A ResNet v2 block by block, cut into stages that fit into their devices.
#include "resnet_job.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/planner/schedule/generators.h"
#include "spillway/planner/schedule/schedule_passes.h"

namespace spillway::scaling {
namespace {

using namespace spillway::cluster;
using namespace spillway::planner_schedule;
using namespace spillway::schedule;

constexpr std::uint32_t kRanks = 4;
constexpr double kImageSide = 1024.0;
constexpr double kConvolutionFlops = 10e12;  // Of a V100 in fp32: assumed, two thirds of its peak.
constexpr double kFloat = 4.0;

/// One bottleneck block: 1×1 to `narrow`, 3×3, 1×1 to `wide` channels.
struct Block {
  double seconds = 0.0;  // Forward of one image.
  double parameters = 0.0;
  double input_bytes = 0.0;
  double output_bytes = 0.0;
  double stash_bytes = 0.0;
};

using Blocks = std::vector<Block>;

/// Three groups of n blocks, as Keras and MPI4DL build it.
Blocks resnet(std::uint32_t n) {
  Blocks blocks;
  double input = 16.0;
  double narrow = 16.0;
  double input_bytes = kFloat * input * kImageSide * kImageSide;
  for (std::uint32_t group = 0; group < 3; ++group) {
    const double wide = group == 0 ? 64.0 : 2.0 * narrow;
    const double pixels = kImageSide * kImageSide / std::pow(4.0, group);
    for (std::uint32_t i = 0; i < n; ++i) {
      const double weights = input * narrow + 9.0 * narrow * narrow + narrow * wide;
      Block block;
      block.seconds = 2.0 * weights * pixels / kConvolutionFlops;
      block.parameters = weights;
      block.input_bytes = input_bytes;
      block.output_bytes = kFloat * wide * pixels;
      // Inputs of three convolutions and of the normalizations before them.
      block.stash_bytes = kFloat * 2.0 * (input + 2.0 * narrow) * pixels;
      blocks.push_back(block);
      input = wide;
      input_bytes = block.output_bytes;
    }
    narrow = wide;
  }
  return blocks;
}

/// Stages of nearly equal time: each ends where its share of the sum is reached.
std::vector<Blocks> cut(const Blocks& blocks, std::uint32_t count) {
  double all = 0.0;
  for (const Block& block : blocks) all += block.seconds;
  std::vector<Blocks> stages(count);
  double before = 0.0;
  for (const Block& block : blocks) {
    const double middle = before + 0.5 * block.seconds;
    stages[static_cast<std::size_t>(middle / all * count)].push_back(block);
    before += block.seconds;
  }
  return stages;
}

/// Bytes that a stage holds of one image.
struct Held {
  double kept = 0.0;     // From forward to backward.
  double working = 0.0;  // In backward: a run that is recomputed, gradients of a block.
};

/// Where so many blocks are recomputed together; 0: none is.
Held held_by(const Blocks& stage, std::size_t run) {
  Held held;
  double gradients = 0.0;
  for (const Block& block : stage) gradients = std::max(gradients, 2.0 * block.output_bytes);
  if (run == 0)
    for (const Block& block : stage) held.kept += block.stash_bytes;
  for (std::size_t first = 0; run > 0 && first < stage.size(); first += run) {
    held.kept += stage[first].input_bytes;
    double recomputed = 0.0;
    for (std::size_t i = first; i < std::min(first + run, stage.size()); ++i)
      recomputed += stage[i].stash_bytes;
    held.working = std::max(held.working, recomputed);
  }
  held.working += gradients;
  return held;
}

/// The run that leaves the most room beside so many images (Chen et al. 2016, for any number).
std::size_t best_run(const Blocks& stage, double images) {
  std::size_t best = 1;
  double least = 0.0;
  for (std::size_t run = 1; run <= stage.size(); ++run) {
    const Held held = held_by(stage, run);
    const double bytes = images * held.kept + held.working;
    if (run > 1 && bytes >= least) continue;
    best = run;
    least = bytes;
  }
  return best;
}

Bytes whole(double bytes) { return Bytes(static_cast<std::uint64_t>(std::ceil(bytes))); }

StageCosts costs_of(const Blocks& blocks, std::size_t run) {
  StageCosts stage;
  double parameters = 0.0;
  for (const Block& block : blocks) {
    stage.forward_seconds += block.seconds;
    parameters += block.parameters;
  }
  stage.input_gradient_seconds = stage.weight_gradient_seconds = stage.forward_seconds;
  if (run > 0) stage.input_gradient_seconds += stage.forward_seconds;
  stage.recompute_seconds = stage.forward_seconds;
  stage.weights = stage.gradients = stage.optimizer_state = whole(kFloat * parameters);
  stage.stash = whole(held_by(blocks, run).kept);
  stage.boundary = whole(blocks.back().output_bytes);
  return stage;
}

/// The most of the stages on each rank.
std::vector<Bytes> working_by_rank(const Schedule& schedule, const std::vector<Bytes>& by_stage) {
  std::vector<Bytes> by_rank(schedule.rank_count());
  for (std::uint32_t replica = 0; replica < schedule.replica_count(); ++replica)
    for (std::uint32_t stage = 0; stage < schedule.stages; ++stage) {
      Bytes& most = by_rank[schedule.rank_of(replica, stage)];
      most = std::max(most, by_stage[stage]);
    }
  return by_rank;
}

struct Attempt {
  ResnetJob made;
  double step_seconds = 0.0;  // With links of its own for each rank.
};

/// With runs chosen for so many images at once; nothing where working space alone is too much.
std::optional<Attempt> try_memory_reduction(const ResnetSetting& setting, const Cluster& cluster,
                                            const CommunicationOptions& communication,
                                            MemoryReduction memory_reduction, double images) {
  Attempt attempt;
  ResnetJob& made = attempt.made;
  made.memory_reduction = memory_reduction;
  ScheduleRequest request;
  request.ranks = kRanks;
  request.micro_batches = setting.micro_batches;
  request.replicas = setting.replicas;
  const Schedule compute = schedule_generator_named(setting.schedule).generate(request);
  std::vector<Bytes> working;
  double input_share = 0.0;  // Of what a stage keeps, its own input: the largest of all stages.
  for (const Blocks& blocks : cut(resnet(setting.n), compute.stages)) {
    const std::size_t run =
        memory_reduction == MemoryReduction::kNone ? 0 : best_run(blocks, images);
    made.job.stages.push_back(costs_of(blocks, run));
    const Held held = held_by(blocks, run);
    working.push_back(whole(held.working));
    input_share = std::max(input_share, blocks.front().input_bytes / held.kept);
  }
  const Bytes most = *std::max_element(working.begin(), working.end());
  if (most >= cluster.device.memory) return std::nullopt;
  ScheduleCosts costs;
  costs.stages = made.job.stages;
  costs.shares.input = input_share;
  // Devices behind one switch share its uplink.
  costs.host = cluster.node.uplink;
  costs.host.rate = costs.host.rate / cluster.node.devices_per_switch;
  costs.memory = cluster.device.memory - most;
  made.job.schedule = *with_communication(compute, costs, communication);
  if (memory_reduction == MemoryReduction::kFitted) {
    made.job.shares = costs.shares;
    made.job.schedule = with_memory_fitted(made.job.schedule, costs);
    made.job.memory = costs.memory;
  }
  const ScheduleTiming timing = time_schedule(made.job.schedule, costs);
  attempt.step_seconds = timing.step_seconds;
  const std::vector<Bytes> by_rank = working_by_rank(made.job.schedule, working);
  for (std::uint32_t rank = 0; rank < kRanks; ++rank)
    made.peak = std::max(made.peak, timing.ranks[rank].peak_memory + by_rank[rank]);
  return attempt;
}

}  // namespace

std::string memory_reduction_text(const ResnetJob& made) {
  if (made.memory_reduction == MemoryReduction::kNone) return "as it is";
  std::uint32_t ranks = 0;
  bool swaps = false;
  for (const auto& list : made.job.schedule.ranks) {
    const auto has = [&](ActionKind kind) {
      return std::any_of(list.begin(), list.end(),
                         [&](const Action& action) { return action.kind == kind; });
    };
    ranks += has(ActionKind::kRecompute) ? 1 : 0;
    swaps = swaps || has(ActionKind::kSwapOut);
  }
  std::string text = "recomputing";
  if (ranks > 0) text += ranks == 1 ? " twice on a rank" : message(" twice on {} ranks", ranks);
  return swaps ? text + ", and swapping" : text;
}

ResnetJob resnet_job(const ResnetSetting& setting, const Cluster& cluster, std::uint32_t pipelines,
                     bool reduces_at_end) {
  CommunicationOptions communication;
  communication.data_parallel = pipelines;
  communication.reduces_at_end = reduces_at_end;
  for (const MemoryReduction memory_reduction :
       {MemoryReduction::kNone, MemoryReduction::kRecompute, MemoryReduction::kFitted}) {
    std::optional<Attempt> best;
    for (const double images : {1.0, 2.0, 3.0, 4.0}) {
      if (memory_reduction == MemoryReduction::kNone && images > 1.0)
        break;  // There are no runs to choose.
      auto next = try_memory_reduction(setting, cluster, communication, memory_reduction, images);
      if (!next || next->made.peak > cluster.device.memory) continue;
      if (!best || next->step_seconds < best->step_seconds) best = std::move(next);
    }
    if (best) return std::move(best->made);
  }
  throw PlanError("{} with {} and {} images fits into no device of {} (use fewer images)",
                  setting.model, setting.schedule, setting.micro_batches, cluster.name);
}

double images_per_second(const Job& job, const JobTiming& timing) {
  return static_cast<double>(job.schedule.all_micro_batches()) * timing.pipelines /
         timing.step_seconds;
}

}  // namespace spillway::scaling
