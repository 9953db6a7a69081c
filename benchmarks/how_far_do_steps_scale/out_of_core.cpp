// Out-of-core data parallelism against Megatron's table: each V100 streams the whole model.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "scaling.h"
#include "streamed_step.h"

namespace spillway::scaling {
namespace {

using namespace spillway::cluster;
using namespace spillway::planner_schedule;
using namespace spillway::schedule;

constexpr double kVocabulary = 51200.0;
constexpr double kSequence = 1024.0;
constexpr double kHalf = 2.0;  // Bytes of weights, gradients and activations.

constexpr StreamedModel kModels[] = {{"1B", 1920, 24, 1.16e9, 1, 1.121},
                                     {"2B", 2304, 30, 2.03e9, 2, 1.093},
                                     {"4B", 3072, 36, 4.24e9, 4, 1.238},
                                     {"8B", 4096, 42, 8.67e9, 8, 1.407}};

/// FLOP of a layer forward for one sample: 24·s·h² of products and 4·s²·h of attention
/// (Narayanan et al., SC 2021).
double layer_flop(const StreamedModel& model) {
  return 24.0 * kSequence * model.hidden * model.hidden +
         4.0 * kSequence * kSequence * model.hidden;
}

/// A stage for each layer, and one for embedding and head; backwards recompute their layer.
std::vector<StageCosts> stages_of(const StreamedModel& model, double samples, double flops) {
  std::vector<StageCosts> stages;
  const double rest = kVocabulary * model.hidden + kSequence * model.hidden;
  for (std::uint32_t i = 0; i <= model.layers; ++i) {
    const bool is_head = i == model.layers;
    const double parameters = is_head ? rest : (model.parameters - rest) / model.layers;
    const double flop = is_head ? 2.0 * kSequence * model.hidden * kVocabulary : layer_flop(model);
    StageCosts stage;
    stage.forward_seconds = samples * flop / flops;
    stage.input_gradient_seconds = (is_head ? 1.0 : 2.0) * stage.forward_seconds;
    stage.weight_gradient_seconds = stage.forward_seconds;
    stage.weights = stage.gradients = Bytes(static_cast<std::uint64_t>(kHalf * parameters));
    stage.stash = Bytes(static_cast<std::uint64_t>(kHalf * samples * kSequence * model.hidden));
    stages.push_back(stage);
  }
  return stages;
}

/// Weights come `ahead` layers before they are needed, forward and back, and go for free; the
/// last ones stay for their backward.
Schedule streamed_list(std::uint32_t stages, std::uint32_t ahead, std::uint32_t pipelines) {
  Schedule schedule;
  schedule.name = "streamed";
  schedule.stages = stages;
  schedule.micro_batches = 1;
  schedule.data_parallel = pipelines;
  schedule.placement = {std::vector<std::uint32_t>(stages, 0)};
  auto& list = schedule.ranks.emplace_back();
  const auto add = [&](ActionKind kind, std::uint32_t stage, bool is_whole) {
    list.push_back({kind, stage, is_whole ? kNoMicroBatch : 0});
  };
  const std::uint32_t kept = std::min(ahead, stages);
  for (std::uint32_t i = 0; i < kept; ++i) add(ActionKind::kSwapInWeights, i, true);
  for (std::uint32_t i = 0; i < stages; ++i) {
    add(ActionKind::kForward, i, false);
    if (i + kept < stages) {
      add(ActionKind::kSwapOutWeights, i, true);
      add(ActionKind::kSwapInWeights, i + kept, true);
    }
  }
  for (std::uint32_t i = stages; i-- > 0;) {
    add(ActionKind::kBackward, i, false);
    add(ActionKind::kSwapOutWeights, i, true);
    add(ActionKind::kReduce, i, true);
    if (i >= kept) add(ActionKind::kSwapInWeights, i - kept, true);
  }
  for (std::uint32_t i = stages; i-- > 0;) add(ActionKind::kStep, i, true);
  return schedule;
}

}  // namespace

std::span<const StreamedModel> streamed_models() { return kModels; }

JobTiming streamed_step(const std::string& folder, const StreamedModel& model, double samples,
                        std::uint32_t gpus) {
  const Cluster cluster = cluster_named(folder, "abci_v100", gpus / 4);
  Job job;
  // Of one GPU that needs no others: the table's for 1B.
  job.stages = stages_of(model, samples, cluster.device.flops_per_second);
  job.schedule = streamed_list(static_cast<std::uint32_t>(job.stages.size()), 4, gpus);
  job.update = UpdatePlace::kHost;
  job.bytes_per_parameter = kHalf;
  job.repetitions = 3;
  return simulate_job(job, cluster);
}

void print_out_of_core(const std::string& folder) {
  std::printf(
      "| model | samples per GPU | GPUs | step, s | exposed copies | exposed exchange | samples/s "
      "per GPU | Megatron's on V100 | peak of layers, GB |\n| --- | --- | --- | --- | --- | --- | "
      "--- | --- | --- |\n");
  for (const StreamedModel& model : kModels)
    for (const double samples : {2.0, 8.0, 16.0})
      for (const std::uint32_t gpus : {256U, 2048U}) {
        const JobTiming timing = streamed_step(folder, model, samples, gpus);
        std::printf("| %s | %.0f | %u | %.2f | %.0f %% | %.0f %% | %.2f | %.2f | %.1f |\n",
                    model.name, samples, gpus, timing.step_seconds,
                    100.0 * timing.ranks[0].exposed_swap_seconds / timing.step_seconds,
                    100.0 * timing.ranks[0].exposed_communication_seconds / timing.step_seconds,
                    samples / timing.step_seconds, 8.0 / model.seconds_of_8 / model.model_parallel,
                    1e-9 * static_cast<double>(timing.peak_memory[0].count()));
      }
}

}  // namespace spillway::scaling
