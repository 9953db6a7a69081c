#include "spillway/planner/partition/partition_problem.h"

#include <algorithm>
#include <utility>

#include "layer_figures.h"
#include "spillway/base/error.h"
#include "spillway/base/figure_text.h"
#include "spillway/base/sizes_apart.h"

namespace spillway::partition {
namespace {

/// Far beyond what anybody measures, so that sums and products stay finite.
constexpr double kMostFactor = 1e9;
constexpr double kLongestLatency = 1e9;
constexpr TransferRate kLeastRate{1e-9};
constexpr TransferRate kMostSwapRate{1e30};

bool is_factor(double value) { return value > 0.0 && value <= kMostFactor; }
bool is_count(double value) { return value >= 0.0 && value <= kMostFactor; }
bool is_swap_rate(TransferRate rate) {
  return rate == TransferRate() || (rate >= kLeastRate && rate <= kMostSwapRate);
}

void check_devices(const PartitionProblem& problem) {
  for (std::size_t i = 0; i < problem.devices.size(); ++i) {
    const StageDevice& device = problem.devices[i];
    if (!is_factor(device.slowdown))
      throw ConfigError("device {} has a slowdown of {}; 1 is the speed that was measured", i,
                        device.slowdown);
    if (device.reserved > device.memory) {
      const SizesApart sizes = sizes_apart(device.reserved, device.memory);
      throw ConfigError("what is reserved and the largest transient of a layer take {}, and the "
                        "device of stage {} has {}; use larger devices",
                        sizes.first, i, sizes.second);
    }
    if (!is_swap_rate(device.swap_rate))
      throw ConfigError("device {} swaps {} bytes/s; leave it at 0 where nothing swaps", i,
                        device.swap_rate.bytes_per_second());
    const HeldCounts& held = device.held;
    if (!is_factor(held.in_flight) || !is_count(held.weight_versions) ||
        !is_count(held.state_copies))
      throw ConfigError(
          "stage {} holds micro-batches, weight versions and copies of the states: {}, "
          "{} and {}; a schedule holds more than 0 of one, and at least 0 of the others",
          i, held.in_flight, held.weight_versions, held.state_copies);
  }
}

}  // namespace

void check(const PartitionProblem& problem) {
  check(problem.chain);
  const std::size_t stages = problem.devices.size();
  if (stages == 0) throw ConfigError("there are no devices to cut for; name one at least");
  if (stages > problem.chain.layers.size())
    throw ConfigError(
        "there are more stages than layers: {} for {} (use {} at most, by fewer --ranks)", stages,
        problem.chain.layers.size(), counted(problem.chain.layers.size(), "stage"));
  // Layers that stay together are on one stage, whatever they weigh.
  const std::size_t units = first_layers_of_units(problem.chain).size() - 1;
  if (stages > units)
    throw ConfigError(
        "there are more stages than groups of layers that may be cut apart: {} for {} "
        "(use {} at most, by fewer --ranks, or smaller groups)",
        stages, units, counted(units, "stage"));
  check_devices(problem);
  if (!problem.links.empty() && problem.links.size() + 1 != stages)
    throw ConfigError("{} have {} between them; give one fewer than stages, or none",
                      counted(stages, "stage"), counted(problem.links.size(), "link"));
  for (std::size_t i = 0; i < problem.links.size(); ++i) {
    const LinkCosts& link = problem.links[i];
    if (!(link.latency_seconds >= 0.0 && link.latency_seconds <= kLongestLatency))
      throw ConfigError(
          "the link behind stage {} takes {} s; times are at least 0 and at most {} s", i,
          link.latency_seconds, kLongestLatency);
    if (!(link.rate >= kLeastRate))
      throw ConfigError("the link behind stage {} carries {} bytes/s; give {} or more", i,
                        link.rate.bytes_per_second(), kLeastRate.bytes_per_second());
  }
}

bool can_swap(const PartitionProblem& problem) {
  return std::any_of(problem.devices.begin(), problem.devices.end(),
                     [](const StageDevice& device) { return !device.swap_rate.is_none(); });
}

PartitionProblem interleaved(const PartitionProblem& problem, std::uint32_t chunks) {
  check(problem);
  if (chunks == 0) throw ConfigError("0 chunks per device run nothing; use 1 for no interleaving");
  PartitionProblem all = problem;
  // One layer of a device runs at a time, whatever its stage, so its peak is there once.
  Bytes peak;
  for (ModelLayer& layer : all.chain.layers)
    peak = std::max(peak, std::exchange(layer.working_peak, Bytes(0)));
  all.devices.clear();
  all.links.clear();
  for (std::uint32_t round = 0; round < chunks; ++round) {
    // From the last device back to the first one; nobody has described that link.
    if (round > 0 && !problem.links.empty()) all.links.push_back(problem.links.front());
    for (StageDevice device : problem.devices) {
      device.reserved += peak;
      // A device that lacks room for that has none to share, and is refused below.
      if (device.memory != kNoLimit && device.memory >= device.reserved)
        device.memory = device.reserved + (device.memory - device.reserved) / chunks;
      // Links as they are: each stage has the time of one stage on them, while the device runs the
      // others.
      all.devices.push_back(device);
    }
    all.links.insert(all.links.end(), problem.links.begin(), problem.links.end());
  }
  // Too many stages for the layers, and devices that do not hold what comes before the shares, show
  // only now.
  check(all);
  return all;
}

}  // namespace spillway::partition
