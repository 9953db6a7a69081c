#include "spillway/runtime/run.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/base/launcher.h"
#include "spillway/base/log.h"
#include "spillway/base/told_errors.h"
#include "spillway/runtime/reporting/profile_summary.h"
#include "spillway/runtime/reporting/summary.h"
#include "spillway/runtime/settings/device_budget.h"
#include "spillway/topology/atomic_file.h"

namespace spillway::runtime {
std::vector<std::string> words_of_this_process() {
  std::vector<std::string> words;
  try {
    std::istringstream text(topology::text_of_file("/proc/self/cmdline"));
    for (std::string word; std::getline(text, word, '\0');) words.push_back(word);
  } catch (const IoError&) {
    words = {program_invocation_name};  // Without /proc.
  }
  return words;
}

namespace {

/// Of a file that others may write, too: another one after each time. Empty: there is none.
std::string state_of(const std::string& path) {
  struct stat facts {};
  if (path.empty() || ::stat(path.c_str(), &facts) != 0) return {};
  return message("{} {} {}", facts.st_ino, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec);
}

Bytes peak_resident_set() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return Bytes(static_cast<std::uint64_t>(usage.ru_maxrss) * 1024);
}

/// Another rank tells of the whole split program.
bool is_silent_rank(const Settings& settings) {
  return settings.split && launched_rank().value_or("0") != "0";
}

/// Where several processes have one terminal, as in the lines of the log.
std::string rank_in_front(const Settings& settings) {
  const auto launcher = find_launcher();
  return !settings.split && launcher && launcher->ranks > 1 ? std::to_string(launcher->rank) : "";
}

bool shows_progress(const Settings& settings) {
  if (is_silent_rank(settings)) return false;
  return settings.progress == ProgressMode::kOn ||
         (settings.progress == ProgressMode::kAuto && !settings.quiet &&
          ::isatty(STDERR_FILENO) == 1);
}

/// A file that all ranks of a split program would write is the first one's.
bool writes(const Settings& settings, const std::string& pattern) {
  return !pattern.empty() && (!is_silent_rank(settings) || is_of_each_rank(pattern));
}

bool made_nothing(const RuntimeReport& host, bool used_devices) {
  return host.memory.live_peak == Bytes() && !used_devices;
}

/// Throws IoError with what is lost where it cannot be written: "the trace".
void write_output(const std::string& path, const std::string& text, std::string_view what) {
  try {
    topology::write_file_at_once(path, text);
  } catch (const IoError& error) {
    throw IoError("{} of this run is lost: {}", what, error.what());
  }
}

/// Each device has one of its own by that name.
bool is_of_each_device(const Settings& settings, const std::string& pattern) {
  return output_path(settings, pattern, "a") != output_path(settings, pattern, "b");
}

RunStatistics::GivenPlan given_plan_in(const planner::PlanFile& plan, const std::string& file,
                                       const LearnerReport& learned) {
  return {file,
          plan.budget,
          plan.rates,
          plan.figures.step_seconds,
          learned.given_steps,
          learned.steps,
          learned.given_misfit};
}

}  // namespace

Run::Run(const Settings& settings, const RunSurroundings& surroundings, const Clock& clock)
    : settings_(settings),
      surroundings_(surroundings),
      clock_(clock),
      start_(clock.now()),
      errors_before_(errors_told()),
      statistics_before_(state_of(output_path(settings, settings.stats))),
      parts_(build_runtime(settings, surroundings, clock)),
      progress_(shows_progress(settings), clock) {
  Runtime& runtime = *parts_.runtime;
  runtime.on_recorded = [this] { end_once_recorded(); };
  end_on_endless_op(runtime);
  surroundings_.told = parts_.warnings;
  if (progress_.is_shown() || settings_.profile_steps > 0)
    runtime.on_step = [this](Duration step) {
      if (progress_.is_shown()) show_progress(step);
      warn_of_unrecorded_steps();
    };
}

void Run::end_on_endless_op(Runtime& runtime) {
  // What runs cannot be interrupted; ending signals are answered with all that is known.
  runtime.on_endless_op = [] { ::kill(::getpid(), SIGTERM); };
}

Runtime& Run::add_device(DeviceSurroundings device) {
  const std::lock_guard adding(adding_mutex_);
  for (const DeviceRun* run : devices())
    if (run->id == device.id) return *run->parts.runtime;
  auto made = std::make_unique<DeviceRun>(DeviceRun{device.id, device.name, device.total, {}});
  made->parts = build_device_runtime(settings_, surroundings_, clock_, std::move(device));
  surroundings_.pinned += made->parts.host_memory;
  surroundings_.told.insert(surroundings_.told.end(), made->parts.warnings.begin(),
                            made->parts.warnings.end());
  Runtime& runtime = *made->parts.runtime;
  runtime.on_recorded = [this] { end_once_recorded(); };
  end_on_endless_op(runtime);
  const std::lock_guard lock(devices_mutex_);
  devices_.push_back(std::move(made));
  return runtime;
}

/// Those whose runtimes are built, in that order.
std::vector<const Run::DeviceRun*> Run::devices() const {
  const std::lock_guard lock(devices_mutex_);
  std::vector<const DeviceRun*> all;
  for (const auto& each : devices_) all.push_back(each.get());
  return all;
}

void Run::show_progress(Duration step) {
  std::vector<ProgressDisplay::DeviceCounts> counts;
  for (const DeviceRun* device : devices())
    counts.push_back({device::to_string(device->id), device->parts.runtime->engine().statistics()});
  progress_.show(step, parts_.runtime->engine().statistics(), counts);
}

/// What one runtime tells.
RunStatistics Run::statistics_of(const RunParts& parts) const {
  RunStatistics statistics;
  static_cast<RuntimeReport&>(statistics) = parts.runtime->report();
  statistics.budget = parts.budget.budget;
  statistics.budget_origin = parts.budget.origin;
  statistics.is_budget_auto = parts.budget.is_auto;
  statistics.address_limit = parts.budget.arena_reason;
  statistics.why_no_addresses = parts.budget.why_no_addresses();
  statistics.run_seconds = seconds(clock_.now() - start_);
  if (settings_.store != swap::StoreKind::kRam)
    statistics.disk_written = statistics.memory.store.written_to_disks();
  if (statistics.memory.store.busy_time.count() > 0) statistics.rates = parts.transfers->rates();
  if (parts.plan != nullptr && statistics.not_reported.empty())
    statistics.given_plan = given_plan_in(*parts.plan, settings_.plan, statistics.learned);
  statistics.store = parts.store_name;
  statistics.prefetch = settings_.prefetch;
  statistics.updates_on_host = settings_.update == UpdatePlace::kHost;
  statistics.verify = settings_.verify;
  return statistics;
}

RunStatistics Run::statistics() const {
  RunStatistics statistics = statistics_of(parts_);
  for (const DeviceRun* device : devices()) {
    RunStatistics& there = statistics.devices.emplace_back(statistics_of(device->parts));
    there.device = device::to_string(device->id);
    there.device_name = device->name;
    there.device_memory = device->total;
  }
  const TrainerFacts facts = trainer_facts();
  statistics.spillway_version = facts.spillway_version;
  statistics.libtorch_version = facts.libtorch_version;
  statistics.program = program_invocation_name;
  statistics.process_id = ::getpid();
  statistics.rank = launched_rank();
  statistics.has_told_errors = has_told_errors();
  statistics.peak_rss = peak_resident_set();
  if (settings_.store != swap::StoreKind::kRam) statistics.endurance = parts_.endurance;
  statistics.recompute = facts.records_calls;
  statistics.recorded_peak = facts.recorded_peak;
  statistics.verified = facts.verified;
  statistics.mapper = memory::name_of(parts_.mapper);
  statistics.dispatch_key = facts.dispatch_key;
  statistics.directories = parts_.directories;
  return statistics;
}

bool Run::has_told_errors() const { return errors_told() > errors_before_; }

/// That of the host, and then of each device as a process of its own.
std::vector<RecordedTrace> Run::recorded_traces() const {
  std::vector<RecordedTrace> all{parts_.trace->trace(program_invocation_name)};
  for (const DeviceRun* device : devices()) {
    RecordedTrace& there = all.emplace_back(device->parts.trace->trace(program_invocation_name));
    const std::string name = to_string(device->id);
    there.trace.title = message("{} ({}): {}", name, device->name, there.trace.title);
    there.trace.process =
        profile::process_of_rank(1U + device->id.index, profile::TraceSource::kRun);
    all.front().summary += message("; {}: {}", name, there.summary);
  }
  return all;
}

RanksTrace on_one_axis(std::vector<RecordedTrace> all) {
  TimePoint begin = TimePoint::max();
  for (const RecordedTrace& each : all) begin = std::min(begin, each.begin);
  RanksTrace made{{}, std::move(all.front().summary)};
  for (RecordedTrace& each : all) {
    shift(each.trace, seconds(each.begin - begin));
    made.traces.push_back(std::move(each.trace));
  }
  return made;
}

void Run::write_trace() {
  const RanksTrace made = trace_of_ranks
                              ? trace_of_ranks(recorded_traces(), !is_of_each_rank(settings_.trace))
                              : on_one_axis(recorded_traces());
  if (made.traces.empty() || has_no_work_ || !writes(settings_, settings_.trace)) return;
  const std::string path = output_path(settings_, settings_.trace);
  write_output(path, profile::to_chrome_trace(made.traces), "the trace");
  if (!settings_.quiet)
    std::fprintf(stderr, "[spillway] trace    %s: %s\n", path.c_str(), made.summary.c_str());
}

/// Where the program uses devices, the steps of the first one are recorded, or those of each.
std::vector<const Run::DeviceRun*> Run::profiled_devices() const {
  std::vector<const DeviceRun*> all = devices();
  if (all.size() > 1 && !is_of_each_device(settings_, settings_.profile_out)) all.resize(1);
  return all;
}

void Run::write_profiles() {
  const std::vector<const DeviceRun*> wanted = profiled_devices();
  const bool is_of_each = is_of_each_device(settings_, settings_.profile_out);
  for (const DeviceRun* device : wanted) {
    try {
      write_profile(device->parts, to_string(device->id));
    } catch (const Error& error) {
      log_error("{}: {}", device->id, error.what());
    }
  }
  // Beside a device the host may have no steps of its own.
  const bool has_host = parts_.recording->has_repeated();
  if (wanted.empty() || (is_of_each && has_host)) write_profile(parts_, {});
  const bool leaves_out = wanted.size() < devices().size() || has_host;
  if (!settings_.quiet && !wanted.empty() && !is_of_each && leaves_out)
    std::fprintf(stderr,
                 "[spillway] profile  of %s alone: with %%d in the name of the file each device "
                 "has one, and the CPU\n",
                 to_string(wanted.front()->id).c_str());
}

void Run::write_profile(const RunParts& parts, const std::string& device) {
  const TrainerFacts facts = trainer_facts();
  profile::ProfileOrigin origin;
  origin.device = device;
  profile::set_program(origin, words_of_this_process());
  origin.libtorch = facts.libtorch_version;
  origin.spillway = facts.spillway_version;
  origin.threads = facts.threads;
  const std::string path = output_path(settings_, settings_.profile_out,
                                       device.empty() ? std::string_view("cpu") : device);
  // What the meter sees is of both tiers together.
  profile::StepProfile profile =
      parts.recording->profile(std::move(origin), parts.runtime->unlisted_peak(),
                               parts.far ? parts.rates : parts.transfers->rates());
  profile.disks = parts.far;
  profile.program_needs = parts.runtime->program_needs();
  write_output(path, profile::to_text(profile), "the profile");
  if (settings_.quiet) return;
  const std::string kinds = parts.recording->kinds_text();
  std::fprintf(stderr, "[spillway] profile  %s: %s%s%s\n", path.c_str(), describe(profile).c_str(),
               kinds.empty() ? "" : "; ", kinds.c_str());
}

void Run::end_once_recorded() {
  const std::vector<const DeviceRun*> wanted = profiled_devices();
  const auto is_complete = [](const DeviceRun* device) {
    return device->parts.recording->is_complete();
  };
  if (wanted.empty() ? parts_.recording->is_complete()
                     : std::all_of(wanted.begin(), wanted.end(), is_complete))
    end_after_recording();
}

/// Whoever waits for the end that --steps promises learns in time that it does not come.
void Run::warn_of_unrecorded_steps() {
  constexpr std::uint64_t kStepsBeforeWarning = 4;
  if (parts_.recording == nullptr || settings_.profile_steps == 0) return;
  if (++boundaries_ != kStepsBeforeWarning) return;
  const std::vector<const DeviceRun*> all = devices();
  if (parts_.recording->has_steps() || std::any_of(all.begin(), all.end(), [](const auto* device) {
        return device->parts.recording->has_steps();
      }))
    return;
  log_warning("{} steps have ended, and no operator used a tensor of {} or more: none of them is "
              "recorded, and --steps ends the program at no such step (end it, and name a smaller "
              "--min-storage)",
              kStepsBeforeWarning,
              all.empty() ? settings_.min_storage : settings_.device_min_storage);
}

void Run::end_after_recording() noexcept {
  finish(Runtime::Ending::kByItself);
  // Its threads may work on: no destructors.
  std::fflush(nullptr);
  std::_Exit(0);
}

void Run::finish(Runtime::Ending ending) noexcept {
  const std::lock_guard lock(finish_mutex_);
  if (std::exchange(is_finished_, true)) return;
  // Each by itself: a file that cannot be written costs none of the others.
  const auto attempt = [](const auto& part) {
    try {
      part();
    } catch (const std::exception& error) {
      log_error("{}", error.what());
    }
  };
  for (const DeviceRun* device : devices()) attempt([&] { device->parts.runtime->finish(ending); });
  attempt([&] { warn_of_needless_settings(); });
  if (ending == Runtime::Ending::kBySignal) attempt([&] { warn_of_missing_gpu(); });
  attempt([&] { parts_.runtime->finish(ending); });
  bool says_more = true;
  attempt([&] {
    const RunStatistics result = statistics();
    says_more = !is_refused_.load() || result.steps > 0;
    has_no_work_ =
        settings_.split && made_nothing(result, !result.devices.empty()) && result.steps == 0;
    tell_statistics(result, says_more);
  });
  if (!says_more) return;
  if (parts_.trace != nullptr) attempt([&] { write_trace(); });
  if (parts_.recording != nullptr && writes(settings_, settings_.profile_out))
    attempt([&] { write_profiles(); });
}

void Run::before_drivers_end() noexcept {
  for (const DeviceRun* device : devices()) {
    device->parts.runtime->engine().stop_moving_ahead();
    if (device->parts.trace != nullptr) device->parts.trace->settle();
  }
}

/// Other ranks of this machine may use the other devices.
void Run::warn_of_needless_settings() const {
  // A device that could not be served was used, and an error has told why.
  if (surroundings_.ranks_here > 1 || has_told_errors()) return;
  std::vector<device::DeviceId> used;
  const std::string& planned = parts_.plan_elsewhere;
  const auto is_planned = [&](const DeviceRun* run) { return run->parts.plan != nullptr; };
  const auto all = devices();
  for (const DeviceRun* device : all) used.push_back(device->id);
  if (!planned.empty() && std::none_of(all.begin(), all.end(), is_planned))
    log_warning("the plan {} had no effect: it is for {}, which the program has not used",
                settings_.plan, planned);
  const std::vector<std::string> needless = needless_budgets(settings_, used);
  if (needless.empty()) return;
  const std::string why = used.empty() && why_no_gpu ? why_no_gpu().reason : std::string();
  // Such a launcher may have started a program that uses them.
  if (why.empty() && made_nothing(parts_.runtime->report(), !used.empty())) return;
  for (const std::string& name : needless)
    log_warning("the budget of {} had no effect: the program has used {}{}{}", name,
                used.empty() ? "no GPU" : "other devices", why.empty() ? "" : "; ", why);
}

/// Perhaps by LibTorch's "no CUDA-capable device is detected": the command lets each rank of a
/// split program see the GPU of its number alone.
void Run::warn_of_missing_gpu() const {
  if (!settings_.split || surroundings_.ranks_here < 2 || !devices().empty() || !why_no_gpu) return;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr || std::string_view(visible) == "0") return;
  const NoGpu none = why_no_gpu();
  if (!none.names_none) return;  // There is none for any rank, or the program is for the CPU alone.
  log_warning(
      "rank {} sees no GPU: {}; each of the {} ranks on this host has the GPU of its number "
      "there, from 0 on (start no more ranks on a host than it has GPUs, or let them share "
      "one with CUDA_VISIBLE_DEVICES=0)",
      launched_rank().value_or("0"), none.reason, surroundings_.ranks_here);
}

/// A launcher that loads LibTorch and makes no tensor has nothing to tell where a program that it
/// has started has written the file.
bool Run::is_told_by_another(const RunStatistics& mine) const {
  return made_nothing(mine, !mine.devices.empty()) && !settings_.split &&
         !settings_.stats.empty() &&
         state_of(output_path(settings_, settings_.stats)) != statistics_before_;
}

void Run::tell_statistics(RunStatistics result, bool shows_summary) {
  if (is_told_by_another(result)) return;
  try {
    if (ranks_at_end) result.ranks = ranks_at_end(result);
  } catch (const Error& error) {
    log_error("the figures of other ranks are missing: {}", error.what());
  }
  progress_.end_line();
  const auto show_summary = [&] {
    std::fputs(summary(result, rank_in_front(settings_)).c_str(), stderr);
  };
  const bool is_shown = shows_summary && !settings_.quiet && !is_silent_rank(settings_);
  if (is_shown) show_summary();
  if (has_no_work_ && !is_silent_rank(settings_) &&
      !(settings_.stats.empty() && settings_.trace.empty()))
    log_warning("no file of this run is written: the program ended before it made a tensor (look "
                "at what it said itself)");
  if (has_no_work_ || !writes(settings_, settings_.stats)) return;
  try {
    write_statistics(output_path(settings_, settings_.stats), result);
  } catch (const IoError& error) {
    // Most of what it would have, also for those who wanted to read nothing here.
    if (!is_shown && !is_silent_rank(settings_)) show_summary();
    throw IoError("the statistics of this run are lost{}: {}",
                  is_silent_rank(settings_) ? "" : " but for its summary", error.what());
  }
}

}  // namespace spillway::runtime
