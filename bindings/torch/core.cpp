#include "core.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "call_recorder.h"
#include "cpu_allocator.h"
#include "held_memory.h"
#include "linked_hooks.h"
#include "spillway/base/log.h"
#include "spillway/preload/hooks.h"
#include "spillway/runtime/endings.h"
#include "spillway/runtime/recording/profile_summary.h"
#include "spillway/runtime/reporting/summary.h"
#include "spillway/runtime/settings/spill_directories.h"
#include "spillway/swap/spill_store_factory.h"
#include "spillway/topology/atomic_file.h"
#include "spillway/topology/machine.h"
#include "spillway_version.h"

namespace spillway::torch_binding {
namespace {

constexpr double kSecondsBetweenLines = 5.0;
// What bench-io has measured counts as if this run had moved so much at that rate.
constexpr Bytes kTrustInMeasuredDisk{std::uint64_t{1} << 30};

std::atomic<Core*> instance{nullptr};

Core& core() { return *instance.load(); }

memory::MapperKind choose_mapper(const std::string& requested) {
  if (requested != "auto") return memory::mapper_kind_from(requested);
  std::string reasons;
  for (const memory::MapperProbe& probe : memory::probe_mappers()) {
    if (probe.is_viable) return probe.kind;
    reasons += message("\n  {}: {}", memory::name_of(probe.kind), probe.reason);
  }
  throw UnsupportedError("memory cannot be paged on this system:{}", reasons);
}

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

void on_thread_started() { Interceptor::enable_on_this_thread(); }

/// What the preload library or, in a trainer that is linked with the core, the core's own copies of
/// its functions are to tell.
void register_hooks(bool kernel_serves_faults, std::size_t bytes_at_once) {
  SpillwayHooks hooks{};
  hooks.version = SPILLWAY_HOOKS_VERSION;
  hooks.thread_started = &on_thread_started;
  hooks.tensor_bytes = &tensor_bytes;
  hooks.bytes_at_once = bytes_at_once;
  hooks.kernel_serves_faults = kernel_serves_faults ? 1 : 0;
  hooks.hold_memory = &hold_memory;
  hooks.release_memory = &release_memory;
  auto* const preloaded =
      reinterpret_cast<SpillwayPreloadRegister>(::dlsym(RTLD_DEFAULT, "spillway_preload_register"));
  if (preloaded == nullptr) {
    register_linked(hooks);
  } else if (preloaded(&hooks) != 0) {
    throw UnsupportedError("libspillway_preload.so and libspillway_core are of different versions; "
                           "install both from the same build");
  }
}

Bytes peak_resident_set() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return Bytes(static_cast<std::uint64_t>(usage.ru_maxrss) * 1024);
}

/// Columns of the terminal that progress is shown on.
std::size_t terminal_width() {
  winsize size{};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return is_known ? size.ws_col - 1U : 79U;
}

void add_records(runtime::RunStatistics& statistics) {
  const CallRecorder* const records = Interceptor::records();
  statistics.recompute = records != nullptr;
  if (records == nullptr) return;
  statistics.verified = records->verified();
  statistics.recorded_peak = records->most_copied();
}

runtime::RunStatistics::GivenPlan given_plan_in(const runtime::PlanFile& plan,
                                                const std::string& file,
                                                const runtime::LearnerReport& learned) {
  return {file,
          plan.budget,
          plan.rates,
          plan.figures.step_seconds,
          learned.given_steps,
          learned.steps,
          learned.given_misfit};
}

}  // namespace

Core& Core::start(const runtime::Settings& settings) {
  if (instance.load() != nullptr) throw ConfigError("Spillway runs already in this process");
  new Core(settings);  // It stays until the process is gone.
  core().watch_endings();
  return core();
}

Core* Core::running() noexcept { return instance.load(); }

Core::Core(const runtime::Settings& settings) : settings_(settings), start_(clock_.now()) {
  configure_log(settings_.quiet ? LogLevel::kError : settings_.log_level,
                runtime::launched_rank().value_or(""));
  const topology::Machine machine = topology::discover_machine();
  budget_ = runtime::resolve_budget(settings_, machine);
  mapper_ = choose_mapper(settings_.mapper);
  runtime::hold_to_mapper(budget_, settings_, machine, mapper_);
  log_info("budget {}: {}", budget_.budget, budget_.origin);
  for (const std::string& warning : budget_.warnings) log_warning("{}", warning);
  runtime::RuntimeOptions options;
  options.budget = budget_.budget;
  options.min_storage = settings_.min_storage;
  options.learns = settings_.prefetch;
  options.planning = runtime::planning_of(settings_, budget_.budget);
  options.planning.processors =
      topology::usable_processors(machine.processors, runtime::launched_ranks_here());
  plan_ = options.planning.stored;
  if (plan_ != nullptr && plan_->budget < budget_.budget)
    log_warning("the plan {} was made for {} and leaves the rest of these {} alone (spillway plan "
                "makes one for this budget)",
                settings_.plan, plan_->budget, budget_.budget);
  if (!settings_.trace.empty()) {
    trace_ = std::make_unique<runtime::StepTraceRecorder>(
        runtime::StepTraceRecorder::Options{.steps = settings_.trace_steps}, clock_);
    options.trace = trace_.get();
  }
  auto engine = make_engine(options, machine.processors.threads.value_or(1));
  if (!settings_.profile_out.empty()) {
    if (!options.learns)
      throw ConfigError("--profile-out needs --prefetch on: a profile is made of learned steps");
    recording_ = std::make_unique<runtime::ProfileRecording>(runtime::ProfileRecording::Options{
        .steps = settings_.profile_steps, .kind = settings_.profile_kind});
    options.recording = recording_.get();
  }
  runtime_ = std::make_unique<runtime::Runtime>(options, std::move(engine), clock_);
  shows_progress_ = settings_.progress == runtime::ProgressMode::kOn ||
                    (settings_.progress == runtime::ProgressMode::kAuto && !settings_.quiet &&
                     ::isatty(STDERR_FILENO) == 1);
  shares_terminal_ = ::isatty(STDERR_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  last_progress_ = start_;
  runtime_->on_recorded = [this] { end_after_recording(); };
  // What runs cannot be interrupted; ending signals are answered with all that is known.
  runtime_->on_endless_survey = [] { ::kill(::getpid(), SIGTERM); };
  runtime_->on_step = [this](Duration step) { show_progress(step); };
  register_hooks(
      memory::serves_system_calls(mapper_),
      bytes_at_once(budget_.budget));  // May throw; from here on LibTorch points to the runtime.
  interceptor_ = std::make_unique<Interceptor>(*runtime_, settings_.dispatch_key, settings_.verify);
  instance.store(this);  // From here on other threads may fork.
  watch_forks();
  install_cpu_allocator(*runtime_);
}

std::unique_ptr<swap::SwapEngine> Core::make_engine(runtime::RuntimeOptions& options,
                                                    unsigned processors) {
  const auto places = runtime::resolve_spill_directories(settings_, budget_.budget,
                                                         runtime::real_surroundings(settings_));
  for (const std::string& warning : places.warnings) log_warning("{}", warning);
  swap::SpillStoreOptions store;
  store.kind = settings_.store;
  store.queue_depth = settings_.queue_depth;
  store.verify = settings_.verify;
  store.ram_capacity = 8 * budget_.budget;
  for (const runtime::ResolvedDirectory& place : places.directories) {
    log_info("spills to {}", runtime::describe(place));
    store.directories.push_back({place.facts.path, place.limit});
    directories_.push_back(place.facts.path);
    wearing_directories_ += place.facts.is_ram_disk ? 0 : 1;
  }
  planner::TransferRates& rates = options.rates;
  rates = places.rates(rates);
  if (settings_.verify)
    rates.checksum_seconds_per_byte =
        runtime::checksum_seconds_per_byte(places.checksum_bytes_per_second(), processors);
  const bool is_measured = places.read_bytes_per_second().has_value();
  const std::string assumed = places.assumed();
  log_info("plans reckon with {} bytes/s written, {} read, {} of both at once, {} s that operators "
           "lose per byte{}{}",
           rates.write_bytes_per_second, rates.read_bytes_per_second, rates.duplex_share,
           rates.slowdown_seconds_per_byte(), assumed.empty() ? "" : "; assumed: ", assumed);
  swap::OpenedSpillStore opened = swap::make_spill_store(store);
  for (const std::string& warning : opened.warnings) log_warning("{}", warning);
  store_name_ = opened.description;

  swap::SwapEngineOptions engine;
  engine.budget = budget_.budget;
  runtime::TransferMeter::Options meter{.before = rates};
  if (is_measured) meter.trust = kTrustInMeasuredDisk;
  transfers_ = std::make_unique<runtime::TransferMeter>(meter);
  engine.observers = {transfers_.get()};
  options.moved = [this] { return transfers_->moved(); };
  if (trace_ != nullptr) engine.observers.push_back(trace_.get());
  // Where steps wait for their plans, equal runs are to have equal ones.
  if (options.planning.moment == runtime::PlanningMoment::kInBackground)
    options.rates_now = [this] { return transfers_->rates(); };
  return std::make_unique<swap::SwapEngine>(engine, memory::make_frame_mapper(mapper_),
                                            std::move(opened.store), clock_);
}

void Core::watch_forks() {
  ::pthread_atfork([] { core().runtime().before_fork(); },
                   [] { core().runtime().after_fork_in_parent(); },
                   [] {
                     Interceptor::disable_for_good();
                     detach_cpu_allocator();
                     core().is_child_.store(true);
                     runtime::unwatch_endings_in_child();
                     core().runtime().engine().after_fork_in_child();
                   });
}

void Core::watch_endings() {
  using Ending = runtime::Runtime::Ending;
  static const auto end = [] { core().finish(Ending::kByItself); };
  std::atexit(end);
  // Python that was interrupted leaves by the signal, without the C library's exit.
  if (auto* const at_exit =
          reinterpret_cast<int (*)(void (*)())>(::dlsym(RTLD_DEFAULT, "Py_AtExit")))
    at_exit(end);
  runtime::watch_endings([] { core().finish(Ending::kBySignal); });
}

void Core::show_progress(Duration step) {
  ++steps_shown_;
  if (!shows_progress_) return;
  const std::lock_guard lock(progress_mutex_);
  const TimePoint now = clock_.now();
  const double passed = seconds(now - last_progress_);
  if (shares_terminal_ && passed < kSecondsBetweenLines) return;
  last_progress_ = now;
  const swap::SwapStatistics memory = runtime_->engine().statistics();
  runtime::Progress progress;
  progress.step = steps_shown_;
  progress.step_seconds = seconds(step);
  progress.resident = memory.counted;
  progress.spilled = memory.store.extents_in_use;
  if (passed > 0.0) {
    progress.read_bytes_per_second =
        static_cast<double>((memory.store.read - last_report_.read).count()) / passed;
    progress.write_bytes_per_second =
        static_cast<double>((memory.store.written - last_report_.written).count()) / passed;
  }
  last_report_ = memory.store;
  // A line that stays open would run into what the program prints on the same terminal.
  const char* const format = shares_terminal_ ? "%s\n" : "\r%s\033[K";
  std::fprintf(stderr, format, runtime::progress_line(progress, terminal_width()).c_str());
  std::fflush(stderr);
}

runtime::RunStatistics Core::statistics() const {
  const runtime::RuntimeReport report = runtime_->report();
  runtime::RunStatistics statistics;
  statistics.spillway_version = kVersion;
  statistics.libtorch_version = TORCH_VERSION;
  statistics.program = program_invocation_name;
  statistics.process_id = ::getpid();
  statistics.rank = runtime::launched_rank();
  statistics.budget = budget_.budget;
  statistics.budget_origin = budget_.origin;
  statistics.peak = report.memory.counted_peak;
  statistics.needed = report.memory.live_peak;
  statistics.small_peak = report.memory.small_peak;
  statistics.peak_rss = peak_resident_set();
  statistics.largest_op_needs = report.smallest_budget;
  statistics.largest_op = report.largest_op;
  statistics.refusal = report.refusal;
  statistics.steps = report.steps;
  statistics.step_seconds_median = report.step_seconds_median;
  statistics.run_seconds = seconds(clock_.now() - start_);
  statistics.fetch_wait_seconds = seconds(report.memory.fetch_wait);
  statistics.write_wait_seconds = seconds(report.memory.room_wait);
  statistics.trap_wait_seconds = seconds(report.memory.fault_wait);
  statistics.trap_count = report.memory.faults;
  statistics.intercept_seconds = report.intercept_seconds;
  statistics.disk_busy_seconds = seconds(report.memory.store.busy_time);
  statistics.spilled = report.memory.spilled;
  statistics.fetched = report.memory.fetched;
  statistics.clean_leaves = report.memory.left_clean;
  statistics.spill_space_peak = report.memory.store.extents_peak;
  if (settings_.store != swap::StoreKind::kRam) {
    statistics.endurance = settings_.endurance * wearing_directories_;
    statistics.disk_written = report.memory.store.written;
  }
  if (report.memory.store.busy_time.count() > 0) statistics.rates = transfers_->rates();
  statistics.cancelled_writes = report.memory.cancelled_writes;
  statistics.io_retries = report.memory.store.retries;
  statistics.ops = report.ops;
  statistics.deviations = report.learned.deviations;
  statistics.step_shapes = report.learned.shapes;
  statistics.left_out = report.left_out;
  if (report.learned.plan_steps > 0) {
    statistics.planned_step_seconds = report.learned.planned_seconds / report.learned.plan_steps;
    statistics.followed_step_seconds = report.learned.followed_seconds / report.learned.plan_steps;
    statistics.bound_step_seconds = report.learned.bound_seconds / report.learned.plan_steps;
    statistics.planned_peak =
        memory::kPageSize * report.learned.planned_peak_pages + report.memory.small_peak;
    statistics.followed_peak = report.learned.followed_peak;
    statistics.strategy = report.learned.strategy;
  }
  if (plan_ != nullptr && report.left_out.empty())
    statistics.given_plan = given_plan_in(*plan_, settings_.plan, report.learned);
  statistics.dropped = report.memory.dropped;
  statistics.replays = report.replays;
  statistics.unplanned_replays = report.unplanned_replays;
  statistics.refused_drops = report.refused_drops;
  statistics.replay_seconds = report.replay_seconds;
  add_records(statistics);
  statistics.stalls = report.stalls;
  statistics.value_stalls = report.learned.stalls;
  statistics.mapper = memory::name_of(mapper_);
  statistics.dispatch_key = interceptor_->key_name();
  statistics.store = store_name_;
  statistics.directories = directories_;
  statistics.prefetch = settings_.prefetch;
  statistics.verify = settings_.verify;
  return statistics;
}

std::string Core::output_path(const std::string& pattern) {
  return runtime::expand_stats_path(pattern, ::getpid(), runtime::launched_rank().value_or("0"));
}

void Core::write_trace() {
  const std::string path = output_path(settings_.trace);
  const runtime::RecordedTrace made = trace_->trace(program_invocation_name);
  topology::write_file_at_once(path, profile::to_chrome_trace(made.trace));
  if (!settings_.quiet)
    std::fprintf(stderr, "[spillway] trace    %s: %s\n", path.c_str(), made.summary.c_str());
}

void Core::write_profile() {
  profile::ProfileOrigin origin;
  profile::set_program(origin, words_of_this_process());
  origin.libtorch = TORCH_VERSION;
  origin.spillway = kVersion;
  origin.threads = static_cast<std::uint32_t>(at::get_num_threads());
  const std::string path = output_path(settings_.profile_out);
  const Bytes small = runtime_->engine().statistics().small_peak;
  profile::StepProfile profile = recording_->profile(std::move(origin), small, transfers_->rates());
  profile.program_needs = runtime_->program_needs();
  topology::write_file_at_once(path, profile::to_text(profile));
  if (settings_.quiet) return;
  const std::string kinds = recording_->kinds_text();
  std::fprintf(stderr, "[spillway] profile  %s: %s%s%s\n", path.c_str(),
               runtime::describe(profile).c_str(), kinds.empty() ? "" : "; ", kinds.c_str());
}

void Core::end_after_recording() noexcept {
  finish(runtime::Runtime::Ending::kByItself);
  // Its threads may work on: no destructors.
  std::fflush(nullptr);
  std::_Exit(0);
}

void Core::finish(runtime::Runtime::Ending ending) noexcept {
  if (is_child_.load()) return;
  const std::lock_guard lock(finish_mutex_);
  if (std::exchange(finished_, true)) return;
  // Each by itself: a file that cannot be written costs none of the others.
  const auto attempt = [](const auto& part) {
    try {
      part();
    } catch (const std::exception& error) {
      log_error("{}", error.what());
    }
  };
  attempt([&] { runtime_->finish(ending); });
  attempt([&] { tell_statistics(); });
  if (trace_ != nullptr) attempt([&] { write_trace(); });
  if (recording_ != nullptr) attempt([&] { write_profile(); });
}

void Core::tell_statistics() {
  const runtime::RunStatistics result = statistics();
  if (shows_progress_ && !shares_terminal_ && steps_shown_ > 0) std::fputs("\n", stderr);
  if (!settings_.quiet) std::fputs(runtime::summary(result).c_str(), stderr);
  if (!settings_.stats.empty()) runtime::write_statistics(output_path(settings_.stats), result);
}

}  // namespace spillway::torch_binding
