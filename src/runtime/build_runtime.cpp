#include "spillway/runtime/build_runtime.h"

#include <algorithm>
#include <utility>

#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/memory/host_pages.h"
#include "spillway/runtime/host_tier.h"
#include "spillway/runtime/settings/device_budget.h"
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
  /// `device`: none for the host.
  Builder(const Settings& settings, const RunSurroundings& surroundings, const Clock& clock,
          DeviceSurroundings device = {})
      : settings_(settings),
        surroundings_(surroundings),
        clock_(clock),
        device_(std::move(device)),
        page_size_(is_host() ? memory::kPageSize : device_.pages->page_size()),
        about_(is_host() ? std::string() : message("{}: ", device_.id)) {}

  RunParts build() {
    if (is_host()) {
      choose_budget();
    } else {
      choose_number();
      choose_device_budget();
    }
    take_budget();
    choose_plans();
    make_trace();
    auto engine = make_engine();
    make_recording();
    parts_.runtime = std::make_unique<Runtime>(options_, std::move(engine), clock_);
    return std::move(parts_);
  }

 private:
  bool is_host() const { return device_.device == nullptr; }

  /// Once in a process, whichever of its runtimes has to say it.
  void warn(const std::string& warning) {
    parts_.warnings.push_back(warning);
    const std::vector<std::string>& told = surroundings_.told;
    if (std::find(told.begin(), told.end(), warning) == told.end()) log_warning("{}", warning);
  }

  void choose_budget() {
    parts_.budget = resolve_budget(settings_, surroundings_.machine, surroundings_.ranks_here);
    parts_.mapper = choose_mapper(settings_.mapper, surroundings_.mappers);
    hold_to_mapper(parts_.budget, settings_, surroundings_.machine, parts_.mapper);
    hold_to_limits(parts_.budget, settings_, surroundings_.machine);
    parts_.host_memory = settings_.host_tier;
  }

  void choose_number() {
    options_.number = 1U + device_.id.index;
    options_.is_of_rank = settings_.split && launched_rank().has_value();
    options_.given_so_far = device_.given_so_far;
    options_.moment = device_.moment;
    options_.before_replay = device_.before_replay;
    options_.after_replay = device_.after_replay;
    if (options_.number >= Runtime::kMostRuntimes)
      throw UnsupportedError("{} is one GPU too many: the first {} can be used (choose among them "
                             "with CUDA_VISIBLE_DEVICES)",
                             device_.id, Runtime::kMostRuntimes - 1);
  }

  void choose_device_budget() {
    device::MemoryInfo memory = device_.device->memory();
    memory.total = device_.total;
    memory.free = std::min(memory.free, memory.total);
    const DeviceFacts facts{
        .id = device_.id,
        .name = device_.name,
        .memory = memory,
        .page_size = device_.pages->page_size(),
        .sharing = sharing_of_card(surroundings_.ranks_on_gpu, surroundings_.ranks_here,
                                   device_.visible, device_.sees_as_others)};
    parts_.budget = resolve_device_budget(settings_, facts);
    const HostMemory behind =
        host_memory_behind(facts, settings_, surroundings_.machine, parts_.budget.budget,
                           surroundings_.pinned, surroundings_.ranks_here);
    log_info("{}{} of host memory behind it: {}", about_, behind.size, behind.origin);
    parts_.host_memory = behind.size;
    // A store in memory has none of its own.
    settings_.host_tier = settings_.store == swap::StoreKind::kRam ? Bytes() : behind.size;
    settings_.min_storage = least_paged(settings_, facts.page_size);
  }

  void take_budget() {
    log_info("{}budget {}: {}", about_, parts_.budget.budget, parts_.budget.origin);
    for (const std::string& warning : parts_.budget.warnings) warn(warning);
    options_.budget = parts_.budget.budget;
    options_.min_storage = settings_.min_storage;
    options_.learns = settings_.prefetch;
    options_.oversize_limit = settings_.oversize_limit;
  }

  void choose_plans() {
    options_.planning =
        planning_of(settings_, options_.budget, is_host() ? std::string() : to_string(device_.id));
    options_.planning.processors =
        topology::usable_processors(surroundings_.machine.processors, surroundings_.ranks_here);
    parts_.plan = options_.planning.stored;
    parts_.plan_elsewhere = options_.planning.stored_elsewhere;
    if (!is_host() && !parts_.plan_elsewhere.empty())
      warn(message("the plan {} is for {}, so {} makes plans of its own", settings_.plan,
                   parts_.plan_elsewhere, device_.id));
    if (parts_.plan != nullptr && parts_.plan->page_size != page_size_)
      throw ConfigError("the plan {} counts pages of {}, and those of {} have {} (record the step "
                        "with the --min-storage of this run, and make the plan again with: "
                        "spillway plan)",
                        settings_.plan, parts_.plan->page_size, device_.id, page_size_);
    // `spillway plan` names its budget in whole MiB, rounded up.
    if (parts_.plan != nullptr && parts_.plan->budget + 1_MiB <= options_.budget)
      warn(message("the plan {} was made for {} and leaves the rest of these {} alone (spillway "
                   "plan makes one for this budget)",
                   settings_.plan, parts_.plan->budget, options_.budget));
  }

  void make_trace() {
    if (settings_.trace.empty()) return;
    parts_.trace = std::make_unique<StepTraceRecorder>(
        StepTraceRecorder::Options{.steps = settings_.trace_steps,
                                   .moment = options_.moment,
                                   .stream = device_.stream,
                                   .has_far_tier = parts_.host_memory > Bytes()},
        clock_);
    options_.trace = parts_.trace.get();
  }

  void make_recording() {
    if (settings_.profile_out.empty()) return;
    if (!options_.learns)
      throw ConfigError("--profile-out needs --prefetch on: a profile is made of learned steps");
    parts_.recording = std::make_unique<ProfileRecording>(
        ProfileRecording::Options{.steps = settings_.profile_steps,
                                  .kind = settings_.profile_kind,
                                  .page_size = page_size_,
                                  .is_timed_on_device = options_.moment != nullptr});
    options_.recording = parts_.recording.get();
  }

  std::unique_ptr<swap::SwapEngine> make_engine() {
    const ResolvedDirectories places = resolve_spill_directories(
        settings_, options_.budget, surroundings_.directories, surroundings_.ranks_here);
    for (const std::string& warning : places.warnings)
      warn(warning == places.shortage ? about_ + warning : warning);
    swap::OpenedSpillStore opened = open_store(places);
    set_rates(places, opened.store->report().host.capacity);
    meter_transfers(places.read_rate().has_value());
    swap::SwapEngineOptions engine;
    engine.budget = options_.budget;
    engine.arena_size = parts_.budget.arena;
    engine.arena_reason = parts_.budget.why_no_addresses();
    engine.others_give_back = device_.others_give_back;
    engine.observers = {parts_.transfers.get()};
    if (parts_.trace != nullptr) engine.observers.push_back(parts_.trace.get());
    auto pages = is_host() ? memory::make_host_pages(parts_.mapper) : std::move(device_.pages);
    return std::make_unique<swap::SwapEngine>(engine, std::move(pages), std::move(opened.store),
                                              clock_);
  }

  /// `host_memory`: before the disks, without what pages on their way there take.
  void set_rates(const ResolvedDirectories& places, Bytes host_memory) {
    planner::TransferRates& rates = options_.rates;
    rates = places.rates(rates);
    if (settings_.verify)
      rates.checksum_seconds_per_byte =
          checksum_seconds_per_byte(places.checksum_rate(), options_.planning.processors);
    const std::string assumed = places.assumed();
    log_info(
        "{}plans reckon with {} bytes/s written, {} read, {} of both at once, {} s that operators "
        "lose per byte{}{}",
        about_, rates.write.bytes_per_second(), rates.read.bytes_per_second(), rates.duplex_share,
        rates.slowdown_seconds_per_byte(), assumed.empty() ? "" : "; assumed: ", assumed);
    const topology::LinkRate* const link =
        is_host() ? nullptr : surroundings_.directories.rates.link_of(device_.name);
    if (link != nullptr)
      log_info("{}its link to host memory is as spillway bench-io measured it at {}", about_,
               link->measured_at);
    const TierRates tiers = tier_rates(host_memory, page_size_, rates, device_.device.get(), link);
    parts_.rates = rates = tiers.rates;
    parts_.far = options_.far = tiers.far;
    if (!is_host() && parts_.plan != nullptr) compare_tiers(*parts_.plan);
  }

  /// What finds no room in host memory goes on to the disks, so such a plan is followed all the
  /// same.
  void compare_tiers(const planner::PlanFile& plan) {
    const std::uint32_t planned = plan.far ? plan.far->near_pages : 0;
    const std::uint32_t here = options_.far ? options_.far->near_pages : 0;
    if (planned > here)
      warn(
          message("the plan {} reckons with {} of host memory behind {}, and there is room for {}: "
                  "the rest goes on to the disks (give more with --nvme ram:SIZE,DIR)",
                  settings_.plan, planned * page_size_, device_.id, here * page_size_));
  }

  swap::OpenedSpillStore open_store(const ResolvedDirectories& places) {
    swap::SpillStoreOptions store;
    store.kind = settings_.store;
    store.queue_depth = settings_.queue_depth;
    store.verify = settings_.verify;
    store.extent_size = page_size_;
    store.ram_capacity = 8 * (options_.budget / page_size_) * page_size_;
    store.host_tier = parts_.host_memory;
    store.device = device_.device;
    if (!is_host()) store.direct = settings_.gds;
    store.disks = parts_.trace.get();
    std::uint64_t wearing_directories = 0;
    for (const ResolvedDirectory& place : places.directories) {
      log_info("{}spills to {}", about_, describe(place));
      store.directories.push_back({place.facts.path, place.limit});
      parts_.directories.push_back(place.facts.path);
      wearing_directories += place.facts.is_ram_disk ? 0 : 1;
    }
    swap::OpenedSpillStore opened = swap::make_spill_store(store);
    for (const std::string& warning : opened.warnings) warn(warning);
    if (!opened.why_not_direct.empty())
      log_info("{}does not read and write all spill files itself: {}", about_,
               opened.why_not_direct);
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

  Settings settings_;
  const RunSurroundings& surroundings_;
  const Clock& clock_;
  DeviceSurroundings device_;
  const Bytes page_size_;
  const std::string about_;  ///< Begins messages about a device: "cuda:0: ".
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

RunParts build_device_runtime(const Settings& settings, const RunSurroundings& surroundings,
                              const Clock& clock, DeviceSurroundings device) {
  return Builder(settings, surroundings, clock, std::move(device)).build();
}

}  // namespace spillway::runtime
