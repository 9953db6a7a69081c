// GEMS with data parallelism on V100s: ResNets v2 at 1024², four to 1,024 devices.
#include <cstdio>
#include <string>

#include "resnet_job.h"
#include "scaling.h"
#include "stragglers.h"

namespace spillway::scaling {
namespace {

using namespace spillway::cluster;

constexpr ResnetSetting kSettings[] = {
    {"ResNet-110 v2", 12, "gems-mast", 2, 2},     {"ResNet-110 v2", 12, "gems-master", 8, 8},
    {"ResNet-110 v2", 12, "1f1b", 8, 0},          {"ResNet-1001 v2", 111, "gems-mast", 2, 2},
    {"ResNet-1001 v2", 111, "gems-master", 8, 8}, {"ResNet-1001 v2", 111, "1f1b", 8, 0},
};

constexpr double kStraggling = 0.01;

double gigabytes(Bytes bytes) { return 1e-9 * static_cast<double>(bytes.count()); }

void print_row(const std::string& folder, const ResnetSetting& setting, bool at_end) {
  double alone = 0.0;
  double bubble = 0.0;
  for (const std::uint32_t devices : {4U, 16U, 64U, 256U, 1024U}) {
    const Cluster cluster = cluster_named(folder, "abci_v100", devices / 4);
    const ResnetJob made = resnet_job(setting, cluster, devices / 4, at_end);
    const JobTiming timing = simulate_job(made.job, cluster);
    const double rate = images_per_second(made.job, timing);
    bubble = timing.bubble;
    if (devices > 4) {
      std::printf(" %.2f %% |", 100.0 * rate / alone * 4.0 / devices);
      continue;
    }
    alone = rate;
    std::printf("| %s | %s, %u images | %s | %s | %.1f | %.2f |", setting.model, setting.schedule,
                setting.micro_batches, at_end ? "at the end" : "as soon as possible",
                memory_reduction_text(made).c_str(), gigabytes(made.peak), rate);
  }
  const Cluster cluster = cluster_named(folder, "abci_v100", 256);
  const Drawn slow =
      straggling_rates(resnet_job(setting, cluster, 256, at_end).job, cluster, kStraggling);
  const auto efficiency = [&](double rate) { return 100.0 * rate / alone / 256.0; };
  std::printf(" %.1f %% | %.2f (%.2f to %.2f) %% |\n", 100.0 * bubble, efficiency(slow.median),
              efficiency(slow.least), efficiency(slow.most));
}

}  // namespace

void print_gems(const std::string& folder) {
  std::printf("| model | schedule | reduced | fits by | peak, GB | images/s on 4 |");
  for (const std::uint32_t devices : {16U, 64U, 256U, 1024U}) std::printf(" %u |", devices);
  std::printf(" bubble | with stragglers, 1024: median of ten draws (least to most) |\n|%s\n",
              " --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
  for (const ResnetSetting& setting : kSettings)
    for (const bool at_end : {true, false}) print_row(folder, setting, at_end);
}

/// The same batch on more and more devices: fewer images for each pipeline.
void print_strong(const std::string& folder) {
  constexpr std::uint32_t kImages = 1024;
  std::printf(
      "| 1,024 images a step | fits by | peak, GB | 16 devices, s | 64 | 256 | 1024 | efficiency "
      "on 1024 |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const char* schedule : {"gems-master", "1f1b"}) {
    double first = 0.0;
    double last = 0.0;
    for (const std::uint32_t devices : {16U, 64U, 256U, 1024U}) {
      const std::uint32_t images = kImages / (devices / 4);
      const Cluster cluster = cluster_named(folder, "abci_v100", devices / 4);
      const ResnetJob made =
          resnet_job({"ResNet-1001 v2", 111, schedule, images, images}, cluster, devices / 4,
                     /*reduces_at_end=*/false);
      last = simulate_job(made.job, cluster).step_seconds;
      if (first == 0.0) {
        first = last;
        std::printf("| ResNet-1001 v2, %s | %s | %.1f |", schedule,
                    memory_reduction_text(made).c_str(), gigabytes(made.peak));
      }
      std::printf(" %.2f |", last);
    }
    std::printf(" %.1f %% |\n", 100.0 * first / last / 64.0);
  }
}

}  // namespace spillway::scaling
