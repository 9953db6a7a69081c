#include "spillway/device/link_probe.h"

#include <algorithm>
#include <cmath>

#include "spillway/base/clock.h"
#include "spillway/base/error.h"
#include "spillway/device/copy_probe.h"

namespace spillway::device {
namespace {

constexpr Bytes kBlockOfRuns = 4_MiB;  // A page of a GPU.
constexpr std::uint32_t kMostWork = 4096;

double rate_of(const BurstTimes& times) {
  return static_cast<double>(times.moved.count()) / times.copies_seconds;
}

/// Bursts of one kind, over and over.
Spread rates_of(CopyProbe& probe, const Burst& burst, unsigned repetitions) {
  std::vector<double> rates;
  for (unsigned i = 0; i < repetitions; ++i) rates.push_back(rate_of(probe.run(burst)));
  return spread_of(std::move(rates));
}

LinkPoint measure_point(Device& device, Bytes block, std::uint32_t depth, unsigned repetitions,
                        std::string& why_pageable) {
  CopyProbe probe(device, block, depth);
  why_pageable = probe.slabs().why_pageable();
  probe.run({.goes_out = true, .comes_in = true});  // Takes the memory.
  return {block, depth, rates_of(probe, {.goes_out = true}, repetitions),
          rates_of(probe, {.comes_in = true}, repetitions),
          rates_of(probe, {.goes_out = true, .comes_in = true}, repetitions)};
}

std::uint32_t pieces(double of) {
  return static_cast<std::uint32_t>(std::clamp(std::ceil(of), 1.0, double{kMostWork}));
}

/// Rates while the device has work to the end, then what work loses that ends before the copies.
LinkBesideWork measure_beside_work(Device& device, const LinkPoint& at, unsigned repetitions) {
  constexpr std::uint32_t kTimes = 4;
  CopyProbe probe(device, at.block, at.depth);
  Burst both{.goes_out = true, .comes_in = true, .times = kTimes};
  probe.run({.goes_out = true, .comes_in = true, .work = 1});  // Takes the memory.
  const double of_copies = probe.run(both).copies_seconds;
  const double of_work = probe.run({.times = 0, .work = 8}).work_seconds / 8;
  LinkBesideWork result;
  result.link.block = at.block;
  result.link.depth = at.depth;
  const std::uint32_t longer = pieces(2.0 * of_copies / of_work);
  const auto beside = [&](Burst burst) {
    burst.times = kTimes;
    burst.work = longer;
    return rates_of(probe, burst, repetitions);
  };
  result.link.out = beside({.goes_out = true});
  result.link.in = beside({.comes_in = true});
  result.link.both = beside({.goes_out = true, .comes_in = true});
  const std::uint32_t shorter = pieces(0.5 * of_copies / of_work);
  std::vector<double> alone, together, lost;
  for (unsigned i = 0; i < repetitions; ++i) {
    alone.push_back(probe.run({.times = 0, .work = shorter}).work_seconds);
    both.work = shorter;
    const BurstTimes times = probe.run(both);
    together.push_back(times.work_seconds);
    const double shared = std::min(1.0, times.work_seconds / times.copies_seconds);
    lost.push_back((times.work_seconds - alone.back()) /
                   (static_cast<double>(times.moved.count()) * shared));
  }
  const double worked = static_cast<double>(CopyProbe::kWorkBlock.count()) * shorter;
  result.work_alone = worked / spread_of(std::move(alone)).median;
  result.work_beside = worked / spread_of(std::move(together)).median;
  result.lost_seconds_per_byte = std::max(0.0, spread_of(std::move(lost)).median);
  return result;
}

PinningTime measure_pinning(Device& device, Bytes size) {
  const SteadyClock clock;
  const auto begin = clock.now();
  const HostSlabs slabs(device, {.slab_size = size, .slab_count = 1, .pinning = Pinning::kPinned});
  return {size, seconds(clock.now() - begin), slabs.why_pageable()};
}

void check(const LinkProbeOptions& options) {
  const auto has_zero = [](const auto& values) {
    return std::any_of(values.begin(), values.end(),
                       [](auto value) { return value == decltype(value){}; });
  };
  if (options.blocks.empty() || options.depths.empty() || options.repetitions == 0 ||
      has_zero(options.blocks) || has_zero(options.depths))
    throw ConfigError("blocks, depths and repetitions of a link's measurement begin with 1");
}

}  // namespace

const LinkPoint* LinkProbe::best() const {
  const auto best_of = [&](auto counts) {
    const LinkPoint* best = nullptr;
    for (const LinkPoint& point : points)
      if (counts(point) && (best == nullptr || point.both.median > best->both.median))
        best = &point;
    return best;
  };
  const LinkPoint* of_runs =
      best_of([](const LinkPoint& each) { return each.block == kBlockOfRuns; });
  return of_runs != nullptr ? of_runs : best_of([](const LinkPoint&) { return true; });
}

std::optional<double> LinkProbe::fixed_seconds(Spread LinkPoint::*direction) const {
  const LinkPoint* const many = best();
  if (many == nullptr || many->depth == 1) return std::nullopt;
  for (const LinkPoint& one : points) {
    if (one.depth != 1 || one.block != many->block) continue;
    const auto bytes = static_cast<double>(one.block.count());
    return std::max(0.0, bytes / (one.*direction).median - bytes / (many->*direction).median);
  }
  return std::nullopt;
}

LinkProbe measure_link(Device& device, const LinkProbeOptions& options) {
  check(options);
  const auto tell = [&](const std::string& what) {
    if (options.progress) options.progress(what);
  };
  LinkProbe result;
  for (const Bytes size : options.pinned_sizes) {
    tell(message("pinning {}", size));
    result.pinning.push_back(measure_pinning(device, size));
  }
  for (const Bytes block : options.blocks) {
    for (const std::uint32_t depth : options.depths) {
      if (block * depth > options.most_at_once) continue;
      tell(message("copies of {}, {} at once", block, depth));
      result.points.push_back(
          measure_point(device, block, depth, options.repetitions, result.why_pageable));
    }
  }
  if (const LinkPoint* best = result.best()) {
    tell("copies beside work of the device");
    result.beside = measure_beside_work(device, *best, options.repetitions);
  }
  return result;
}

}  // namespace spillway::device
