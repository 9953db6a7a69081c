// The points of the pictures, as CSV.
#include <cstdio>
#include <utility>

#include "resnet_job.h"
#include "scaling.h"
#include "stragglers.h"
#include "streamed_step.h"

namespace spillway::scaling {
namespace {

using namespace spillway::cluster;

constexpr std::pair<const char*, std::uint32_t> kModels[] = {{"ResNet-110 v2", 12},
                                                             {"ResNet-1001 v2", 111}};
constexpr std::pair<const char*, std::uint32_t> kSchedules[] = {
    {"gems-mast", 2}, {"gems-master", 8}, {"1f1b", 8}};

/// With stragglers, the median of what they may be.
double rate_on(const std::string& folder, const ResnetSetting& setting, std::uint32_t devices,
               double spread) {
  const Cluster cluster = cluster_named(folder, "abci_v100", devices / 4);
  const ResnetJob made = resnet_job(setting, cluster, devices / 4, /*reduces_at_end=*/true);
  return spread > 0.0 ? straggling_rates(made.job, cluster, spread).median
                      : images_per_second(made.job, simulate_job(made.job, cluster));
}

/// Beside one node without stragglers: what they cost counts, too.
void print_weak_gems(const std::string& folder) {
  for (const auto& [model, n] : kModels)
    for (const auto& [schedule, images] : kSchedules) {
      const ResnetSetting setting{model, n, schedule, images, images};
      const double alone = rate_on(folder, setting, 4, 0.0);
      for (const double spread : {0.0, 0.01})
        for (std::uint32_t devices = 4; devices <= 1024; devices *= 2)
          std::printf("weak,%s,%s%s,%u,%.6f\n", model, schedule,
                      spread > 0.0 ? " with stragglers" : "", devices,
                      rate_on(folder, setting, devices, spread) / alone * 4 / devices);
    }
}

void print_weak_streaming(const std::string& folder) {
  for (const StreamedModel& model : streamed_models()) {
    double alone = 0.0;
    for (std::uint32_t gpus = 4; gpus <= 2048; gpus *= 2) {
      const double step = streamed_step(folder, model, 8.0, gpus).step_seconds;
      if (gpus == 4) alone = step;
      std::printf("weak,out of core,%s,%u,%.6f\n", model.name, gpus, alone / step);
    }
  }
}

void print_strong_gems(const std::string& folder) {
  constexpr std::uint32_t kImages = 1024;
  for (const auto& [model, n] : kModels)
    for (const char* schedule : {"gems-master", "1f1b"})
      for (std::uint32_t devices = 16; devices <= 1024; devices *= 2) {
        const std::uint32_t images = kImages / (devices / 4);
        const Cluster cluster = cluster_named(folder, "abci_v100", devices / 4);
        const ResnetJob made = resnet_job({model, n, schedule, images, images}, cluster,
                                          devices / 4, /*reduces_at_end=*/false);
        std::printf("strong,%s,%s,%u,%.6f\n", model, schedule, devices,
                    simulate_job(made.job, cluster).step_seconds);
      }
}

void print_strong_streaming(const std::string& folder) {
  constexpr std::uint32_t kSamples = 4096;
  for (const StreamedModel& model : streamed_models())
    for (std::uint32_t gpus = 128; gpus <= 2048; gpus *= 2)
      std::printf(
          "strong,out of core,%s,%u,%.6f\n", model.name, gpus,
          streamed_step(folder, model, static_cast<double>(kSamples) / gpus, gpus).step_seconds);
}

}  // namespace

void print_curves(const std::string& folder) {
  std::printf("picture,panel,curve,devices,value\n");
  print_weak_gems(folder);
  print_weak_streaming(folder);
  print_strong_gems(folder);
  print_strong_streaming(folder);
}

}  // namespace spillway::scaling
