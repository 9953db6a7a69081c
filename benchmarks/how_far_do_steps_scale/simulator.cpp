// How long the simulation itself takes, up to 4,096 ranks.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>

#include "scaling.h"
#include "spillway/planner/schedule/generators.h"
#include "spillway/planner/schedule/schedule_passes.h"

namespace spillway::scaling {
namespace {

using namespace spillway::cluster;
using namespace spillway::planner_schedule;

struct Setting {
  const char* cluster;
  std::uint32_t ranks;  // Of a pipeline.
  std::uint32_t micro_batches;
  std::uint32_t pipelines;
  PlacementOrder order;
  double straggling;
  bool simulates_all;
};

/// 64 MB between stages, 400 MB of gradients on each rank, 10 ms forward.
Job job_of(const Setting& setting) {
  Job job;
  StageCosts stage;
  stage.forward_seconds = stage.input_gradient_seconds = stage.weight_gradient_seconds = 10e-3;
  stage.boundary = Bytes(64'000'000);
  stage.weights = stage.gradients = Bytes(400'000'000);
  job.stages.assign(setting.ranks, stage);
  ScheduleRequest request;
  request.ranks = setting.ranks;
  request.micro_batches = setting.micro_batches;
  CommunicationOptions options;
  options.data_parallel = setting.pipelines;
  job.schedule = *with_communication(schedule_generator_named("1f1b").generate(request), options);
  job.order = setting.order;
  job.simulates_all_pipelines = setting.simulates_all;
  return job;
}

/// Of all pipelines, also where one stands for them.
unsigned long long actions_of(const Job& job) {
  unsigned long long actions = 0;
  for (const auto& list : job.schedule.ranks) actions += list.size();
  return actions * job.schedule.data_parallel;
}

constexpr auto kPipelineFirst = PlacementOrder::kPipelineFirst;
constexpr auto kDataParallelFirst = PlacementOrder::kDataParallelFirst;

constexpr Setting kSettings[] = {
    {"dgx_h200", 8, 32, 512, kPipelineFirst, 0.0, false},
    {"dgx_h200", 8, 32, 512, kPipelineFirst, 0.0, true},
    {"dgx_h200", 8, 32, 512, kPipelineFirst, 0.05, true},
    {"dgx_h200", 8, 32, 512, kDataParallelFirst, 0.05, true},
    {"dgx_h200", 64, 128, 64, kPipelineFirst, 0.05, true},
    {"abci_v100", 16, 64, 256, kPipelineFirst, 0.0, false},
    {"abci_v100", 16, 64, 256, kPipelineFirst, 0.05, true},
};

}  // namespace

void print_simulator(const std::string& folder) {
  std::printf(
      "| cluster | pipelines × ranks | micro-batches | placement | stragglers | simulated | step, "
      "s | bubble | actions of all ranks | events | wall, s | memory so far, GiB |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const Setting& setting : kSettings) {
    Cluster cluster = cluster_named(folder, setting.cluster, 512);
    if (cluster.device_count() < 4096) cluster.nodes = 1024;
    cluster.stragglers = {StragglerLaw::kHalfNormal, setting.straggling, 1.0, false, 1};
    const Job job = job_of(setting);
    const auto begin = std::chrono::steady_clock::now();
    const JobTiming timing = simulate_job(job, cluster);
    const double wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::printf(
        "| %s | %u × %u | %u | %s | %.0f %% | %u | %.4f | %.1f %% | %llu | %llu | %.1f | %.2f |\n",
        setting.cluster, setting.pipelines, setting.ranks, setting.micro_batches,
        setting.order == kPipelineFirst ? "pipeline" : "data parallel", 100.0 * setting.straggling,
        timing.simulated_pipelines, timing.step_seconds, 100.0 * timing.bubble, actions_of(job),
        static_cast<unsigned long long>(timing.events), wall,
        static_cast<double>(usage.ru_maxrss) / (1 << 20));
    std::fflush(stdout);
  }
}

}  // namespace spillway::scaling
