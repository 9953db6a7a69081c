// How long do exact cuts take, beside those of published partitioners? Prints the tables of the
// README; "--quick" leaves out the largest chain.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/planner/partition/partitioners.h"

namespace {

using namespace spillway;
using namespace spillway::partition;

constexpr int kRounds = 5;
/// Rounds end behind so much.
constexpr double kMostMilliseconds = 3000.0;
constexpr double kLinkRate = 12e9;

struct Case {
  std::uint32_t layers;
  std::uint32_t stages;
  bool has_borders;
  bool can_swap;
};

/// Layers that all differ, each with two recompute points; one-forward-one-backward.
PartitionProblem made_up(const Case& size) {
  std::mt19937_64 random(7);
  const auto between = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random() % 1'000'000) * 1e-6;
  };
  const auto bytes = [&](double low, double high) {
    return Bytes(static_cast<std::uint64_t>(between(low, high)));
  };
  PartitionProblem problem;
  for (std::uint32_t i = 0; i < size.layers; ++i) {
    ModelLayer layer;
    layer.name = "layer";
    layer.forward_seconds = between(0.5e-3, 1.5e-3);
    layer.backward_seconds = 2 * layer.forward_seconds;
    layer.parameters = bytes(1e6, 3e7);
    layer.static_ratio = 4;
    layer.stash = bytes(1e6, 5e7);
    layer.recompute = {{layer.forward_seconds * between(0.2, 0.5), layer.stash / 2},
                       {layer.forward_seconds, layer.stash / 10}};
    layer.working_peak = bytes(1e6, 1e8);
    problem.chain.layers.push_back(layer);
    if (!size.has_borders) continue;
    // To the next layer, and every sixteenth one far ahead.
    if (i + 1 < size.layers) problem.chain.borders.push_back({i, {i + 1}, bytes(1e6, 1e7)});
    if (i % 16 == 0 && i + 40 < size.layers)
      problem.chain.borders.push_back({i, {i + 20, i + 40}, bytes(1e5, 1e6)});
  }
  StageDevice device;
  if (size.can_swap) device.swap_rate = TransferRate(kLinkRate);
  problem.devices.assign(size.stages, device);
  for (std::uint32_t k = 0; k < size.stages; ++k)
    problem.devices[k].held.in_flight = std::min(size.stages - k, 64U);
  return problem;
}

/// Milliseconds: median, and the two ends.
struct Spread {
  double low, median, high;
};

Spread timed(const std::function<void()>& work) {
  std::vector<double> all;
  double total = 0.0;
  for (int round = 0; round < kRounds && total < kMostMilliseconds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    all.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
    total += all.back();
  }
  std::sort(all.begin(), all.end());
  return {all.front(), all[all.size() / 2], all.back()};
}

void print(const Spread& spread) {
  std::printf(" %.1f [%.1f–%.1f] |", spread.median, spread.low, spread.high);
}

void print_row(const Case& size) {
  PartitionProblem problem = made_up(size);
  const SegmentCosts endless(problem);
  const double seconds = 1.15 * least_time_cuts(endless)->worst;
  const double bytes = 1.02 * least_memory_cuts(endless, seconds)->worst;
  for (StageDevice& device : problem.devices)
    device.memory = Bytes(static_cast<std::uint64_t>(bytes));
  const SegmentCosts capped(problem);
  std::printf("| %u × %u | %s | %s |", size.layers, size.stages, size.has_borders ? "yes" : "no",
              size.can_swap ? "12 GB/s" : "none");
  print(timed([&] { const SegmentCosts again(problem); }));
  print(timed([&] { least_memory_cuts(endless, seconds); }));
  print(timed([&] { least_time_cuts(capped); }));
  std::printf("\n");
}

/// Devices on which few stages fit as they are.
SegmentCosts on_small_devices(const Case& size) {
  PartitionProblem problem = made_up(size);
  const SegmentCosts endless(problem);
  const double seconds = 1.3 * least_time_cuts(endless)->worst;
  const double bytes = 1.5 * least_memory_cuts(endless, seconds)->worst;
  for (StageDevice& device : problem.devices)
    device.memory = Bytes(static_cast<std::uint64_t>(bytes));
  return SegmentCosts(std::move(problem));
}

/// What whole layers take where stages are long, and nothing swaps.
void print_long_stages(const Case& size) {
  const SegmentCosts costs = on_small_devices(size);
  const Cuts cuts = partitioner_named("spillway").cut(costs);
  const PartitionEstimate estimate = evaluate(costs, cuts);
  std::printf("| %u × %u |", size.layers, size.stages);
  print(timed([&] { evaluate(costs, cuts); }));
  print(timed([&] { partitioner_named("spillway").cut(costs); }));
  std::printf(" %.3g | %+.4f %% |\n", static_cast<double>(estimate.point_sets),
              100 * (estimate.seconds / least_time_cuts(costs)->worst - 1));
}

/// All partitioners on one chain.
void print_partitioners(const Case& size) {
  const SegmentCosts costs = on_small_devices(size);
  const double bound = least_time_cuts(costs)->worst;
  std::printf("\n| partitioner, %u × %u | search, ms | slowest stage over the bound |\n"
              "| --- | --- | --- |\n",
              size.layers, size.stages);
  for (const Partitioner& each : partitioners()) {
    try {
      const Cuts cuts = each.cut(costs);
      const PartitionEstimate estimate = evaluate(costs, cuts);
      std::printf("| `%s` |", std::string(each.name).c_str());
      print(timed([&] { each.cut(costs); }));
      if (estimate.fits) {
        std::printf(" %+.2f %% |\n", 100 * (estimate.seconds / bound - 1));
      } else {
        std::printf(" does not fit |\n");
      }
    } catch (const PlanError&) {
      std::printf("| `%s` | | finds none that fit |\n", std::string(each.name).c_str());
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  const bool is_quick = count > 1 && std::string_view(arguments[1]) == "--quick";
  std::printf(
      "| layers × stages | borders | swaps | build, ms | least memory at a time, ms | least time "
      "within memory, ms |\n| --- | --- | --- | --- | --- | --- |\n");
  for (const auto& [layers, stages] :
       {std::pair{1'000U, 100U}, {10'000U, 1'000U}, {100'000U, 1'000U}}) {
    if (is_quick && layers > 10'000) continue;
    for (const bool has_borders : {false, true})
      for (const bool can_swap : {true, false}) print_row({layers, stages, has_borders, can_swap});
  }
  std::printf(
      "\n| layers × stages | evaluate, ms | `spillway`, ms | sets of points | over the bound |"
      "\n| --- | --- | --- | --- | --- |\n");
  for (const auto& [layers, stages] : {std::pair{10'000U, 16U}, {10'000U, 4U}, {100'000U, 2U}})
    print_long_stages({layers, stages, false, false});
  for (const auto& [layers, stages] : {std::pair{400U, 16U}, {10'000U, 1'000U}})
    print_partitioners({layers, stages, true, false});
  return 0;
}
