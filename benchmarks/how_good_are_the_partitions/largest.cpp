#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "figures.h"
#include "spillway/base/error.h"
#include "spillway/base/named_values.h"
#include "spillway/planner/partition/partitioners.h"

namespace spillway::quality {

using namespace partition;
using nlohmann::ordered_json;

namespace {

constexpr Bytes kDevice{16'000'000'000};
/// "In time": at most so many times what the slowest stage takes when memory does not matter.
constexpr double kSlowest = 1.25;
constexpr double kBatchSteps = 32.0;
constexpr std::uint32_t kMostSize = 1U << 20U;
/// Of models up to here some may have fewer layers than there are stages, and larger ones fit.
constexpr std::uint32_t kEnoughLayers = 64;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// What a partitioner's source does about memory, and whether that decides its cuts.
struct PartitionerTraits {
  MemoryReduction memory_reduction = MemoryReduction::kNone;
  bool sees_memory_reduction = false;
};
constexpr std::array<Named<PartitionerTraits>, 13> kTraits{{
    {"spillway", {MemoryReduction::kSwapAndRecompute, true}},
    {"capslog", {MemoryReduction::kNone, false}},
    {"dawnpiper", {MemoryReduction::kSwapAndRecompute, true}},
    {"even", {MemoryReduction::kNone, false}},
    {"galvatron", {MemoryReduction::kRecompute, false}},
    {"gpipe", {MemoryReduction::kRecompute, false}},
    {"mcap", {MemoryReduction::kNone, false}},
    {"obscura", {MemoryReduction::kSwapAndRecompute, true}},
    {"parameters", {MemoryReduction::kNone, false}},
    {"pipedream", {MemoryReduction::kNone, false}},
    {"piper", {MemoryReduction::kRecompute, true}},
    {"torchgpipe", {MemoryReduction::kRecompute, false}},
    {"vpipe", {MemoryReduction::kSwapAndRecompute, true}},
}};
constexpr std::array<Named<MemoryReduction>, 3> kMemoryReductions{
    {{"none", MemoryReduction::kNone},
     {"recompute", MemoryReduction::kRecompute},
     {"swap and recompute", MemoryReduction::kSwapAndRecompute}}};

/// Models of each size from 1 on.
struct Family {
  std::function<Workload(std::uint32_t)> of_size;
  Flight flight = Flight::kOneForwardOneBackward;
  double parameter_bytes_of_one = 0.0, parameter_bytes_of_each_more = 0.0;
};

/// The largest model of a family on so many devices.
class Largest {
 public:
  Largest(const Family& family, std::uint32_t stages) : family_(family), stages_(stages) {}

  /// What any cuts reach, with layers recomputed in fractions.
  std::uint32_t of_any(MemoryReduction memory_reduction, bool in_time) {
    const auto [known, is_new] = any_.try_emplace({memory_reduction, in_time}, 0U);
    if (is_new)
      known->second =
          largest([&](std::uint32_t size) { return fits_any(size, memory_reduction, in_time); });
    return known->second;
  }

  /// From what any cuts reach downwards in steps of 3 %, since a strategy may fail on a model and
  /// do on a larger one; then between the two.
  std::uint32_t of(const Partitioner& partitioner, const PartitionerTraits& traits,
                   MemoryReduction memory_reduction, bool in_time) {
    const auto fits_here = [&](std::uint32_t size) {
      return fits(partitioner, traits, size, memory_reduction, in_time);
    };
    std::uint32_t size = of_any(memory_reduction, in_time);
    std::uint32_t refused = size + 1;
    while (size > 0 && !fits_here(size)) {
      refused = size;
      size = std::min(size - 1, size * 97 / 100);
    }
    while (size > 0 && refused - size > 1) {
      const std::uint32_t middle = size + (refused - size) / 2;
      (fits_here(middle) ? size : refused) = middle;
    }
    return size;
  }

 private:
  static std::uint32_t largest(const std::function<bool(std::uint32_t)>& fits_here) {
    std::uint32_t low = 0;
    std::uint32_t high = 1;
    for (; high < kMostSize; high *= 2) {
      if (fits_here(high))
        low = high;
      else if (low > 0 || high >= kEnoughLayers)
        break;
    }
    while (high - low > 1) {
      const std::uint32_t middle = low + (high - low) / 2;
      (fits_here(middle) ? low : high) = middle;
    }
    return low;
  }

  std::optional<SegmentCosts> costs_of(std::uint32_t size, MemoryReduction memory_reduction,
                                       Bytes memory) const {
    try {
      return SegmentCosts(
          problem_of(family_.of_size(size), {stages_, memory, memory_reduction, family_.flight}));
    } catch (const ConfigError&) {
      return std::nullopt;  // A layer fits on no device, or there are too few.
    }
  }

  double limit(std::uint32_t size, bool in_time) {
    if (!in_time) return kInfinite;
    const auto [known, is_new] = limits_.try_emplace(size, 0.0);
    if (is_new)
      if (const auto costs = costs_of(size, MemoryReduction::kNone, kNoLimit))
        known->second = kSlowest * least_time_cuts(*costs)->worst;
    return known->second;
  }

  bool fits_any(std::uint32_t size, MemoryReduction memory_reduction, bool in_time) {
    const auto costs = costs_of(size, memory_reduction, kDevice);
    const auto cuts = costs ? least_time_cuts(*costs) : std::nullopt;
    return cuts && cuts->worst <= limit(size, in_time);
  }

  bool fits(const Partitioner& partitioner, const PartitionerTraits& traits, std::uint32_t size,
            MemoryReduction memory_reduction, bool in_time) {
    const auto costs = costs_of(size, memory_reduction, kDevice);
    if (!costs) return false;
    const auto cuts = cuts_of(partitioner, traits, *costs, size);
    if (!cuts) return false;
    const double most = limit(size, in_time);
    for (std::uint32_t k = 0; k < stages_; ++k) {
      const double seconds =
          costs->least_seconds({(*cuts)[k], (*cuts)[k + 1], k}, costs->device_bytes(k));
      if (seconds == kInfinite || seconds > most) return false;
    }
    // Where time does not matter, whole layers save as much as fractions: all of them.
    return !in_time || evaluate(*costs, *cuts).seconds <= most;
  }

  std::optional<Cuts> cuts_of(const Partitioner& partitioner, const PartitionerTraits& traits,
                              const SegmentCosts& costs, std::uint32_t size) {
    const auto made = [&]() -> std::optional<Cuts> {
      try {
        return partitioner.cut(costs);
      } catch (const PlanError&) {
        return std::nullopt;  // It finds none that fit.
      }
    };
    if (traits.sees_memory_reduction) return made();
    const auto [known, is_new] = cuts_.try_emplace({partitioner.name, size});
    if (is_new) known->second = made();
    return known->second;
  }

  const Family& family_;
  const std::uint32_t stages_;
  std::map<std::pair<MemoryReduction, bool>, std::uint32_t> any_;
  std::map<std::uint32_t, double> limits_;  ///< By size.
  /// Of partitioners that do not see the memory reduction.
  std::map<std::pair<std::string_view, std::uint32_t>, std::optional<Cuts>> cuts_;
};

bool is_wanted(const Partitioner& partitioner, MemoryReduction memory_reduction,
               MemoryReduction own) {
  // Ours with all kinds, the others with theirs and ours; who could swap also where nothing can.
  if (partitioner.reading == Reading::kOurs || memory_reduction == own) return true;
  return memory_reduction == MemoryReduction::kSwapAndRecompute ||
         (memory_reduction == MemoryReduction::kRecompute &&
          own == MemoryReduction::kSwapAndRecompute);
}

/// By devices: each partitioner with the kinds of memory reduction that are wanted of it, `most` at
/// most.
ordered_json sizes(const Family& family, const std::vector<std::uint32_t>& counts,
                   MemoryReduction most) {
  ordered_json devices = ordered_json::object();
  for (const std::uint32_t stages : counts) {
    Largest search(family, stages);
    ordered_json all = ordered_json::array();
    for (const Partitioner& each : partitioners()) {
      const PartitionerTraits traits = value_named(each.name, kTraits, "partitioner");
      for (const auto& memory_reduction : kMemoryReductions) {
        if (memory_reduction.value > most ||
            (most > MemoryReduction::kNone &&
             !is_wanted(each, memory_reduction.value, traits.memory_reduction)))
          continue;
        all.push_back({{"partitioner", each.name},
                       {"memory_reduction", memory_reduction.name},
                       {"own", memory_reduction.value == traits.memory_reduction},
                       {"any_time", search.of(each, traits, memory_reduction.value, false)},
                       {"in_time", search.of(each, traits, memory_reduction.value, true)}});
      }
    }
    devices[std::to_string(stages)] = std::move(all);
  }
  return {{"parameter_bytes_of_one", family.parameter_bytes_of_one},
          {"parameter_bytes_of_each_more", family.parameter_bytes_of_each_more},
          {"devices", devices}};
}

/// The first layers whose name begins so, up to the next such layer.
LayerRange first_block(const ModelChain& chain, const std::string& block) {
  std::vector<LayerIndex> begins;
  for (LayerIndex i = 0; i < chain.layers.size(); ++i)
    if (chain.layers[i].name.starts_with(block)) begins.push_back(i);
  if (begins.empty()) throw ConfigError("no layer is called '{}'; name one to repeat", block);
  return {begins.front(), begins.size() > 1 ? begins[1] - 1 : begins.front()};
}

double parameter_bytes(const ModelChain& chain) {
  double sum = 0.0;
  for (const ModelLayer& layer : chain.layers) sum += static_cast<double>(layer.parameters.count());
  return sum;
}

Family growing(const Workload& workload, const std::string& block, Flight flight) {
  Workload base = workload;
  base.chain = shortened(std::move(base.chain), block);
  const LayerRange range = first_block(base.chain, block);
  Family family;
  family.flight = flight;
  family.of_size = [base, range](std::uint32_t size) {
    Workload grown = base;
    grown.chain = repeated(base.chain, range, size);
    return grown;
  };
  family.parameter_bytes_of_one = parameter_bytes(family.of_size(1).chain);
  family.parameter_bytes_of_each_more =
      parameter_bytes(family.of_size(2).chain) - family.parameter_bytes_of_one;
  return family;
}

/// Those of 4 to 32 that the layers are enough for.
std::vector<std::uint32_t> device_counts(std::size_t layers, bool is_quick) {
  std::vector<std::uint32_t> counts;
  for (const std::uint32_t count : {4U, 8U, 16U, 32U})
    if (count <= layers && (count == 4 || !is_quick)) counts.push_back(count);
  return counts;
}

}  // namespace

ordered_json largest_batches(const Workload& workload, bool is_quick) {
  Family family;
  family.flight = Flight::kNoFlush;
  family.of_size = [&workload](std::uint32_t size) {
    Workload grown = workload;
    grown.chain = scaled(workload.chain, size / kBatchSteps);
    return grown;
  };
  family.parameter_bytes_of_one = parameter_bytes(workload.chain);
  return sizes(family, device_counts(workload.chain.layers.size(), is_quick),
               MemoryReduction::kSwapAndRecompute);
}

ordered_json largest_models(const Workload& workload, const std::string& block, bool is_quick) {
  return sizes(growing(workload, block, Flight::kOneForwardOneBackward),
               device_counts(kEnoughLayers, is_quick), MemoryReduction::kSwapAndRecompute);
}

ordered_json largest_models_without_reduction(const Workload& workload, const std::string& block,
                                              bool is_quick) {
  const auto counts = device_counts(kEnoughLayers, is_quick);
  return {{"all forwards first",
           sizes(growing(workload, block, Flight::kAllForward), counts, MemoryReduction::kNone)},
          {"1F1B", sizes(growing(workload, block, Flight::kOneForwardOneBackward), counts,
                         MemoryReduction::kNone)}};
}

}  // namespace spillway::quality
