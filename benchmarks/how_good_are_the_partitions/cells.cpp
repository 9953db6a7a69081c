#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "figures.h"
#include "spillway/base/error.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::quality {

using namespace partition;
using nlohmann::ordered_json;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
/// Relative; sums in another order differ by that.
constexpr double kSame = 1e-9;
/// The smallest devices: a step takes so many times the least.
constexpr double kSlowest = 2.0;
constexpr int kHalvings = 3;

const Partitioner& ours() { return partitioners().front(); }

Bytes rounded_up(double bytes) { return Bytes(static_cast<std::uint64_t>(std::ceil(bytes))); }

/// Those of whom there are none that fit have none.
std::optional<Cuts> cuts_of(const Partitioner& partitioner, const SegmentCosts& costs) {
  try {
    return partitioner.cut(costs);
  } catch (const PlanError&) {
    return std::nullopt;
  }
}

/// One workload on devices with and without a limit.
class Cell {
 public:
  Cell(const Workload& workload, const Setting& setting, const SegmentCosts& endless)
      : workload_(workload), setting_(setting), endless_(endless) {}

  ordered_json figures() {
    const SegmentCosts costs(problem_of(workload_, setting_));
    ordered_json seconds = ordered_json::object();
    std::map<std::string_view, Cuts> cuts;
    for (const Partitioner& each : partitioners()) {
      const auto found = cuts_of(each, costs);
      if (!found) continue;
      cuts.emplace(each.name, *found);
      const PartitionEstimate estimate = evaluate(costs, *found);
      if (estimate.fits) seconds[std::string(each.name)] = estimate.seconds;
    }
    const double least = seconds.value(std::string(ours().name), kInfinite);
    if (least == kInfinite)
      throw PlanError("ours has no cuts for {} stages of {}, which should be enough",
                      setting_.stages, setting_.memory);
    seconds_ = least * (1 + kSame);
    ordered_json bytes = ordered_json::object();
    for (const auto& [name, each] : cuts)
      if (const double most = bytes_of(each); most < kInfinite) bytes[std::string(name)] = most;
    bytes[std::string(ours().name)] = our_bytes(bytes);
    const auto bound = least_time_cuts(costs);
    const auto balanced = balanced_time_cuts(costs);
    const auto frugal = frugal_cuts(endless_, seconds_);
    return {{"bound_seconds", bound->worst},
            {"first_seconds", evaluate(costs, balanced->cuts).seconds},
            {"seconds", seconds},
            {"bound_bytes", least_memory_cuts(endless_, seconds_)->worst},
            {"first_bytes", bytes_of(frugal->cuts)},
            {"bytes", bytes}};
  }

 private:
  /// What the fullest stage needs so that none takes longer than ours.
  double bytes_of(const Cuts& cuts) const {
    const PartitionEstimate estimate = evaluate_memory(endless_, cuts, seconds_);
    return estimate.fits ? static_cast<double>(estimate.memory.count()) : kInfinite;
  }

  bool are_ours_in_time(double bytes) const {
    Setting smaller = setting_;
    smaller.memory = rounded_up(bytes);
    try {
      const SegmentCosts costs(problem_of(workload_, smaller));
      const auto cuts = cuts_of(ours(), costs);
      return cuts && evaluate(costs, *cuts).seconds <= seconds_;
    } catch (const ConfigError&) {
      return false;  // A layer fits on no device.
    }
  }

  /// The smallest devices found on which ours keeps to its time here: those of the most frugal
  /// other cuts, if it does there, and then between these and the bound.
  double our_bytes(const ordered_json& others) const {
    const double bound = least_memory_cuts(endless_, seconds_)->worst;
    double least = static_cast<double>(setting_.memory.count());
    least = std::min(least, others.value(std::string(ours().name), kInfinite));
    least = std::min(least, bytes_of(frugal_cuts(endless_, seconds_)->cuts));
    std::vector<double> smaller;
    for (const auto& each : others.items())
      if (each.value().get<double>() < least) smaller.push_back(each.value().get<double>());
    std::sort(smaller.begin(), smaller.end());
    for (const double bytes : smaller) {
      if (!are_ours_in_time(bytes)) continue;
      least = bytes;
      break;
    }
    double refused = bound;
    for (int i = 0; i < kHalvings && least > bound * (1 + kSame); ++i) {
      const double middle = std::floor((refused + least) / 2);
      (are_ours_in_time(middle) ? least : refused) = middle;
    }
    return least;
  }

  const Workload& workload_;
  Setting setting_;
  const SegmentCosts& endless_;
  double seconds_ = 0.0;  ///< That ours takes here.
};

/// Between the smallest devices and those that time-balanced cuts fill.
void add_cells(const Workload& workload, Setting setting, const std::vector<double>& shares,
               ordered_json& all) {
  const SegmentCosts endless(problem_of(workload, setting));
  const auto quickest = balanced_time_cuts(endless);
  const double plenty = static_cast<double>(evaluate(endless, quickest->cuts).memory.count());
  const double tight = least_memory_cuts(endless, kSlowest * quickest->worst)->worst;
  for (const double share : shares) {
    setting.memory = rounded_up(tight + share * (plenty - tight));
    ordered_json cell{{"stages", setting.stages},
                      {"swaps", setting.memory_reduction == MemoryReduction::kSwapAndRecompute},
                      {"share", share},
                      {"memory_bytes", setting.memory.count()},
                      {"least_seconds", quickest->worst}};
    cell.update(Cell(workload, setting, endless).figures());
    all.push_back(std::move(cell));
  }
}

}  // namespace

ordered_json cells(const Workload& workload, bool is_quick) {
  const std::vector<std::uint32_t> counts =
      is_quick ? std::vector<std::uint32_t>{4} : std::vector<std::uint32_t>{4, 8, 16, 32};
  const std::vector<double> shares =
      is_quick ? std::vector<double>{0.0, 0.5} : std::vector<double>{0.0, 0.1, 0.25, 0.5, 1.0};
  ordered_json all = ordered_json::array();
  for (const std::uint32_t stages : counts) {
    if (workload.chain.layers.size() < 2 * std::size_t{stages}) continue;
    for (const MemoryReduction memory_reduction :
         {MemoryReduction::kSwapAndRecompute, MemoryReduction::kRecompute}) {
      if (memory_reduction == MemoryReduction::kSwapAndRecompute && !workload.can_swap) continue;
      add_cells(workload, {.stages = stages, .memory_reduction = memory_reduction}, shares, all);
    }
  }
  return all;
}

}  // namespace spillway::quality
