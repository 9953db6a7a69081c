#include "spillway/runtime/build_runtime.h"

#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/memory/host_pages.h"
#include "spillway/runtime/host_tier.h"
#include "spillway/runtime/settings/mapper_choice.h"
#include "spillway/swap/spill_store_factory.h"
#include "spillway/topology/machine.h"

namespace spillway::runtime {
namespace {

// What bench-io has measured counts as if this run had moved so much at that rate.
constexpr Bytes kTrustInMeasuredDisk{std::uint64_t{1} << 30};

/// Builds the parts one after the other; each step reads what the ones before it have set.
class Builder {
 public:
  Builder(const Settings& settings, const RunSurroundings& surroundings, const Clock& clock)
      : settings_(settings), surroundings_(surroundings), clock_(clock) {}

  RunParts build() {
    choose_budget();
    choose_plans();
    make_trace();
    auto engine = make_engine();
    make_recording();
    parts_.runtime = std::make_unique<Runtime>(options_, std::move(engine), clock_);
    return std::move(parts_);
  }

 private:
  void choose_budget() {
    parts_.budget = resolve_budget(settings_, surroundings_.machine, surroundings_.ranks_here);
    parts_.mapper = choose_mapper(settings_.mapper, surroundings_.mappers);
    hold_to_mapper(parts_.budget, settings_, surroundings_.machine, parts_.mapper);
    hold_to_limits(parts_.budget, settings_, surroundings_.machine);
    log_info("budget {}: {}", parts_.budget.budget, parts_.budget.origin);
    for (const std::string& warning : parts_.budget.warnings) log_warning("{}", warning);
    options_.budget = parts_.budget.budget;
    options_.min_storage = settings_.min_storage;
    options_.learns = settings_.prefetch;
    options_.oversize_limit = settings_.oversize_limit;
  }

  void choose_plans() {
    options_.planning = planning_of(settings_, options_.budget);
    options_.planning.processors =
        topology::usable_processors(surroundings_.machine.processors, surroundings_.ranks_here);
    parts_.plan = options_.planning.stored;
    if (parts_.plan != nullptr && parts_.plan->budget < options_.budget)
      log_warning(
          "the plan {} was made for {} and leaves the rest of these {} alone (spillway plan "
          "makes one for this budget)",
          settings_.plan, parts_.plan->budget, options_.budget);
  }

  void make_trace() {
    if (settings_.trace.empty()) return;
    parts_.trace = std::make_unique<StepTraceRecorder>(
        StepTraceRecorder::Options{.steps = settings_.trace_steps}, clock_);
    options_.trace = parts_.trace.get();
  }

  void make_recording() {
    if (settings_.profile_out.empty()) return;
    if (!options_.learns)
      throw ConfigError("--profile-out needs --prefetch on: a profile is made of learned steps");
    parts_.recording = std::make_unique<ProfileRecording>(ProfileRecording::Options{
        .steps = settings_.profile_steps, .kind = settings_.profile_kind});
    options_.recording = parts_.recording.get();
  }

  std::unique_ptr<swap::SwapEngine> make_engine() {
    const ResolvedDirectories places = resolve_spill_directories(
        settings_, options_.budget, surroundings_.directories, surroundings_.ranks_here);
    for (const std::string& warning : places.warnings) log_warning("{}", warning);
    set_rates(places);
    swap::OpenedSpillStore opened = open_store(places);
    meter_transfers(places.read_bytes_per_second().has_value());
    swap::SwapEngineOptions engine;
    engine.budget = options_.budget;
    engine.arena_size = parts_.budget.arena;
    engine.arena_reason = parts_.budget.why_no_addresses();
    engine.observers = {parts_.transfers.get()};
    if (parts_.trace != nullptr) engine.observers.push_back(parts_.trace.get());
    return std::make_unique<swap::SwapEngine>(engine, memory::make_host_pages(parts_.mapper),
                                              std::move(opened.store), clock_);
  }

  void set_rates(const ResolvedDirectories& places) {
    planner::TransferRates& rates = options_.rates;
    rates = places.rates(rates);
    if (settings_.verify)
      rates.checksum_seconds_per_byte = checksum_seconds_per_byte(
          places.checksum_bytes_per_second(), options_.planning.processors);
    const std::string assumed = places.assumed();
    log_info(
        "plans reckon with {} bytes/s written, {} read, {} of both at once, {} s that operators "
        "lose per byte{}{}",
        rates.write_bytes_per_second, rates.read_bytes_per_second, rates.duplex_share,
        rates.slowdown_seconds_per_byte(), assumed.empty() ? "" : "; assumed: ", assumed);
    const TierRates tiers = tier_rates(settings_, rates);
    rates = tiers.rates;
    options_.far = tiers.far;
  }

  swap::OpenedSpillStore open_store(const ResolvedDirectories& places) {
    swap::SpillStoreOptions store;
    store.kind = settings_.store;
    store.queue_depth = settings_.queue_depth;
    store.verify = settings_.verify;
    store.ram_capacity = 8 * options_.budget;
    store.host_tier = settings_.host_tier;
    std::uint64_t wearing_directories = 0;
    for (const ResolvedDirectory& place : places.directories) {
      log_info("spills to {}", describe(place));
      store.directories.push_back({place.facts.path, place.limit});
      parts_.directories.push_back(place.facts.path);
      wearing_directories += place.facts.is_ram_disk ? 0 : 1;
    }
    swap::OpenedSpillStore opened = swap::make_spill_store(store);
    for (const std::string& warning : opened.warnings) log_warning("{}", warning);
    parts_.store_name = opened.description;
    if (settings_.store != swap::StoreKind::kRam)
      parts_.endurance = options_.endurance = settings_.endurance * wearing_directories;
    return opened;
  }

  void meter_transfers(bool is_measured) {
    TransferMeter::Options meter{.before = options_.rates};
    if (is_measured) meter.trust = kTrustInMeasuredDisk;
    parts_.transfers = std::make_unique<TransferMeter>(meter);
    TransferMeter* const transfers = parts_.transfers.get();
    options_.moved = [transfers] { return transfers->moved(); };
    // Where steps wait for their plans, equal runs are to have equal ones; and what the meter sees
    // is of both tiers together.
    if (options_.planning.moment == PlanningMoment::kInBackground && !options_.far)
      options_.rates_now = [transfers] { return transfers->rates(); };
  }

  const Settings& settings_;
  const RunSurroundings& surroundings_;
  const Clock& clock_;
  RuntimeOptions options_;
  RunParts parts_;
};

}  // namespace

RunSurroundings surroundings_of_this_process(const Settings& settings) {
  return {topology::discover_machine(), launched_ranks_here(), mapper_surroundings(),
          real_surroundings(settings)};
}

RunParts build_runtime(const Settings& settings, const RunSurroundings& surroundings,
                       const Clock& clock) {
  return Builder(settings, surroundings, clock).build();
}

}  // namespace spillway::runtime
