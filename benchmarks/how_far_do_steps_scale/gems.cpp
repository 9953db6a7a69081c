// GEMS with data parallelism on V100s: ResNets v2 at 1024², four to 1,024 devices.
#include <cmath>
#include <cstdio>
#include <vector>

#include "scaling.h"
#include "spillway/planner/schedule/generators.h"
#include "spillway/planner/schedule/schedule_passes.h"

namespace spillway::scaling {
namespace {

using namespace spillway::planner;

constexpr double kImageSide = 1024.0;
constexpr double kConvolutionFlops = 10e12;  // Of a V100 in fp32: assumed, two thirds of its peak.
constexpr double kFloat = 4.0;

/// One bottleneck block: 1×1 to `narrow`, 3×3, 1×1 to `wide` channels.
struct Block {
  double seconds = 0.0;  // Forward of one image.
  double parameters = 0.0;
  double output_bytes = 0.0;
  double stash_bytes = 0.0;
};

/// ResNet v2 of depth 9n + 2 with three groups of n blocks, as Keras and MPI4DL build it.
std::vector<Block> resnet(std::uint32_t n) {
  std::vector<Block> blocks;
  double input = 16.0;
  double narrow = 16.0;
  for (std::uint32_t group = 0; group < 3; ++group) {
    const double wide = group == 0 ? 64.0 : 2.0 * narrow;
    const double pixels = kImageSide * kImageSide / std::pow(4.0, group);
    for (std::uint32_t i = 0; i < n; ++i) {
      const double weights = input * narrow + 9.0 * narrow * narrow + narrow * wide;
      Block block;
      block.seconds = 2.0 * weights * pixels / kConvolutionFlops;
      block.parameters = weights;
      block.output_bytes = kFloat * wide * pixels;
      // Inputs of three convolutions and of the normalizations before them.
      block.stash_bytes = kFloat * 2.0 * (input + 2.0 * narrow) * pixels;
      blocks.push_back(block);
      input = wide;
    }
    narrow = wide;
  }
  return blocks;
}

/// Stages of nearly equal time: each ends where its share of the sum is reached.
std::vector<StageCosts> cut(const std::vector<Block>& blocks, std::uint32_t stages) {
  double all = 0.0;
  for (const Block& block : blocks) all += block.seconds;
  std::vector<StageCosts> costs(stages);
  double before = 0.0;
  for (const Block& block : blocks) {
    const double middle = before + 0.5 * block.seconds;
    StageCosts& stage = costs[static_cast<std::size_t>(middle / all * stages)];
    stage.forward_seconds += block.seconds;
    stage.input_gradient_seconds += block.seconds;
    stage.weight_gradient_seconds += block.seconds;
    stage.recompute_seconds += block.seconds;
    const auto bytes = [](double count) { return Bytes(static_cast<std::uint64_t>(count)); };
    stage.weights += bytes(kFloat * block.parameters);
    stage.gradients += bytes(kFloat * block.parameters);
    stage.optimizer_state += bytes(kFloat * block.parameters);
    stage.stash += bytes(block.stash_bytes);
    stage.boundary = bytes(block.output_bytes);
    before += block.seconds;
  }
  return costs;
}

struct Setting {
  const char* model;
  std::uint32_t n;
  const char* schedule;
  std::uint32_t micro_batches;  // Of a pipeline.
  std::uint32_t replicas;
};

Job job_of(const Setting& setting, std::uint32_t pipelines, bool reduces_at_end) {
  constexpr std::uint32_t kStages = 4;
  ScheduleRequest request;
  request.ranks = kStages;
  request.micro_batches = setting.micro_batches;
  request.replicas = setting.replicas;
  Job job;
  job.stages = cut(resnet(setting.n), kStages);
  const Schedule plain = schedule_generator_named(setting.schedule).generate(request);
  ScheduleCosts costs;
  costs.stages = job.stages;
  CommunicationOptions options;
  options.data_parallel = pipelines;
  options.reduces_at_end = reduces_at_end;
  job.schedule = with_communication(plain, costs, options);
  return job;
}

constexpr Setting kSettings[] = {
    {"ResNet-110 v2", 12, "gems-mast", 2, 2},     {"ResNet-110 v2", 12, "gems-master", 8, 8},
    {"ResNet-110 v2", 12, "1f1b", 8, 0},          {"ResNet-1001 v2", 111, "gems-mast", 2, 2},
    {"ResNet-1001 v2", 111, "gems-master", 8, 8}, {"ResNet-1001 v2", 111, "1f1b", 8, 0},
};

double images_per_second(const Job& job, const JobTiming& timing) {
  return static_cast<double>(job.schedule.all_micro_batches()) * timing.pipelines /
         timing.step_seconds;
}

/// The same batch on more and more devices: fewer images for each pipeline.
void print_strong_scaling(const std::string& folder) {
  constexpr std::uint32_t kImages = 1024;
  std::printf("| 1,024 images a step | 16 devices, s | 64 | 256 | 1024 | efficiency on 1024 |\n| "
              "--- | --- | "
              "--- | --- | --- | --- |\n");
  for (const char* schedule : {"gems-master", "1f1b"}) {
    std::printf("| ResNet-1001 v2, %s |", schedule);
    double first = 0.0;
    double last = 0.0;
    for (const std::uint32_t devices : {16U, 64U, 256U, 1024U}) {
      const std::uint32_t images = kImages / (devices / 4);
      const Job job = job_of({"", 111, schedule, images, images}, devices / 4, false);
      last = simulate_job(job, cluster_named(folder, "abci_v100", devices / 4)).step_seconds;
      if (first == 0.0) first = last;
      std::printf(" %.2f |", last);
    }
    std::printf(" %.1f %% |\n", 100.0 * first / last / 64.0);
  }
  std::printf("\n");
}

}  // namespace

void print_gems(const std::string& folder) {
  std::printf("| model | schedule | reduced | images/s on 4 |");
  for (const std::uint32_t devices : {16U, 64U, 256U, 1024U}) std::printf(" %u |", devices);
  std::printf(" bubble | with stragglers, 1024 |\n|%s\n",
              " --- | --- | --- | --- | --- | --- | --- "
              "| --- | --- | --- |");
  for (const Setting& setting : kSettings)
    for (const bool at_end : {true, false}) {
      double alone = 0.0;
      double bubble = 0.0;
      std::printf("| %s | %s, %u images | %s |", setting.model, setting.schedule,
                  setting.micro_batches, at_end ? "at the end" : "as soon as possible");
      for (const std::uint32_t devices : {4U, 16U, 64U, 256U, 1024U}) {
        const Job job = job_of(setting, devices / 4, at_end);
        const JobTiming timing = simulate_job(job, cluster_named(folder, "abci_v100", devices / 4));
        const double rate = images_per_second(job, timing);
        bubble = timing.bubble;
        if (devices == 4) alone = rate;
        if (devices == 4)
          std::printf(" %.2f |", rate);
        else
          std::printf(" %.2f %% |", 100.0 * rate / alone * 4.0 / devices);
      }
      Cluster slow = cluster_named(folder, "abci_v100", 256);
      slow.stragglers = {StragglerLaw::kHalfNormal, 0.01, 1.0, false, 1};
      const Job job = job_of(setting, 256, at_end);
      const double rate = images_per_second(job, simulate_job(job, slow));
      std::printf(" %.1f %% | %.2f %% |\n", 100.0 * bubble, 100.0 * rate / alone / 256.0);
    }
  std::printf("\n");
  print_strong_scaling(folder);
}

}  // namespace spillway::scaling
