// GEMS on slides: 7 hours became 28 minutes. What must hold for that, and what is there to gain?
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "resnet_job.h"
#include "scaling.h"
#include "spillway/base/error.h"
#include "spillway/planner/job/job_plan.h"
#include "spillway/planner/schedule/generators.h"

namespace spillway::scaling {
namespace {

using namespace spillway::cluster;
using namespace spillway::job;
using namespace spillway::planner_schedule;

constexpr double kBefore = 7.0 * 3600.0;  // Seconds, as published; so is what follows.
constexpr double kAfter = 28.0 * 60.0;
constexpr double kTilesOfSlide = 98.0 * 98.0;  // 100,000² pixels in tiles of 1024².
constexpr double kPublishedEfficiency = 0.9732;
constexpr ResnetSetting kPublished{"ResNet-110 v2", 12, "gems-mast", 2, 2};

/// A schedule that fits into the V100s of a node, and what it does there.
struct Fitted {
  ResnetSetting setting;
  ResnetJob made;
  double rate = 0.0;  // Images/s on four devices.
};

Fitted fitted(const std::string& folder, const ResnetSetting& setting) {
  const Cluster node = cluster_named(folder, "abci_v100", 1);
  Fitted fit{setting, resnet_job(setting, node, 1, /*reduces_at_end=*/false)};
  fit.rate = images_per_second(fit.made.job, simulate_job(fit.made.job, node));
  return fit;
}

double rate_on(const std::string& folder, const Fitted& fit, std::uint32_t devices) {
  const Cluster cluster = cluster_named(folder, "abci_v100", devices / 4);
  const ResnetJob made = resnet_job(fit.setting, cluster, devices / 4, /*reduces_at_end=*/false);
  return images_per_second(made.job, simulate_job(made.job, cluster));
}

/// Of all other schedules that fit and change no results, the fastest ones.
std::vector<Fitted> fastest_others(const std::string& folder, std::uint32_t images,
                                   std::size_t count) {
  std::vector<Fitted> all;
  for (const ScheduleGenerator& generator : schedule_generators()) {
    if (generator.name.starts_with("gems")) continue;
    try {
      Fitted fit = fitted(folder, {"ResNet-110 v2", 12, generator.name.data(), images, 0});
      if (!changes_results(fit.made.job.schedule)) all.push_back(std::move(fit));
    } catch (const Error&) {
      continue;  // It does not serve so many images, or does not fit.
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Fitted& a, const Fitted& b) { return a.rate > b.rate; });
  if (all.size() > count) all.erase(all.begin() + static_cast<std::ptrdiff_t>(count), all.end());
  return all;
}

std::string time_text(double seconds) {
  char text[32];
  if (seconds >= 3600.0)
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600.0);
  else
    std::snprintf(text, sizeof text, "%.1f min", seconds / 60.0);
  return text;
}

void print_row(const std::string& folder, const Fitted& fit, double tiles) {
  std::printf("| %s", fit.setting.schedule);
  if (fit.setting.replicas > 0) std::printf(", %u passes", fit.setting.replicas);
  std::printf(" | %u | %s | %.1f | %.2f |", fit.setting.micro_batches,
              memory_reduction_text(fit.made).c_str(),
              1e-9 * static_cast<double>(fit.made.peak.count()), fit.rate);
  for (const std::uint32_t devices : {4U, 64U, 128U, 1024U})
    std::printf(" %s |", time_text(tiles / rate_on(folder, fit, devices)).c_str());
  std::printf("\n");
}

void print_growth() {
  const double faster = kBefore / kAfter;
  std::printf("| devices grow by | for instance | efficiency that %.1f times as fast takes |\n"
              "| --- | --- | --- |\n",
              faster);
  std::printf("| %.1f | | %.2f %%, as published for 1,024 V100 |\n", faster / kPublishedEfficiency,
              100.0 * kPublishedEfficiency);
  for (const std::uint32_t growth : {16U, 32U, 64U, 256U})
    std::printf("| %u | 4 to %u | %.1f %% |\n", growth, 4 * growth, 100.0 * faster / growth);
  std::printf("\n");
}

/// The same images for each update on more devices: how much of the efficiency that alone costs.
void print_fixed_batch(const std::string& folder) {
  std::printf("| images for each update | on 4 devices, images/s | on 128 | efficiency |\n"
              "| --- | --- | --- | --- |\n");
  for (const std::uint32_t images : {32U, 64U, 128U, 256U}) {
    const auto rate = [&](std::uint32_t devices) {
      const std::uint32_t each = images / (devices / 4);
      const Cluster cluster = cluster_named(folder, "abci_v100", devices / 4);
      const ResnetJob made = resnet_job({"ResNet-110 v2", 12, "gems-master", each, each}, cluster,
                                        devices / 4, /*reduces_at_end=*/false);
      return images_per_second(made.job, simulate_job(made.job, cluster));
    };
    const double few = rate(4);
    const double many = rate(128);
    std::printf("| %u | %.2f | %.1f | %.1f %% |\n", images, few, many, 100.0 * many / few / 32.0);
  }
  std::printf("\n");
}

}  // namespace

void print_slides(const std::string& folder) {
  const Fitted published = fitted(folder, kPublished);
  const double tiles = published.rate * kBefore;
  std::printf("7 hours on 4 V100 with %s are %.0f tiles: %.1f slides of %.0f tiles, once.\n\n",
              kPublished.schedule, tiles, tiles / kTilesOfSlide, kTilesOfSlide);
  print_growth();
  print_fixed_batch(folder);
  std::printf(
      "| schedule | images of a pipeline | fits by | peak, GB | images/s on 4 | on 4 | 64 | 128 | "
      "1024 |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
  print_row(folder, fitted(folder, {"ResNet-110 v2", 12, "gems-basic", 1, 0}), tiles);
  print_row(folder, published, tiles);
  print_row(folder, fitted(folder, {"ResNet-110 v2", 12, "gems-master", 8, 8}), tiles);
  print_row(folder, fitted(folder, {"ResNet-110 v2", 12, "gems-master", 8, 4}), tiles);
  print_row(folder, fitted(folder, {"ResNet-110 v2", 12, "gems-master", 8, 2}), tiles);
  for (const std::uint32_t images : {8U, 32U})
    for (const Fitted& fit : fastest_others(folder, images, 3)) print_row(folder, fit, tiles);
}

}  // namespace spillway::scaling
