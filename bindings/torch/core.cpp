#include "core.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <memory>

#include "call_recorder.h"
#include "cpu_allocator.h"
#include "device_library.h"
#include "device_runtimes.h"
#include "held_memory.h"
#include "linked_hooks.h"
#include "python_pointers.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/memory/kernel_refusal.h"
#include "spillway/memory/locked_memory.h"
#include "spillway/memory/own_limits.h"
#include "spillway/pipeline/agreement/process_facts.h"
#include "spillway/preload/active.h"
#include "spillway/preload/hooks.h"
#include "spillway/runtime/endings.h"
#include "spillway/runtime/settings/device_budget.h"
#include "spillway/split/refusals.h"
#include "spillway/split/shared_gpu.h"
#include "spillway/split/split_placement.h"
#include "spillway_version.h"

namespace spillway::torch_binding {
namespace {

std::atomic<Core*> instance{nullptr};

Core& core() { return *instance.load(); }

/// The log names rank and level from the first line on.
const runtime::Settings& with_log(const runtime::Settings& settings) {
  configure_log(settings.quiet ? LogLevel::kError : settings.log_level,
                runtime::launched_rank().value_or(""));
  return settings;
}

void on_thread_refused() {
  static std::atomic<bool> is_told{false};
  if (!is_told.exchange(true))
    log_error("the program cannot start a thread: {}", memory::why_no_thread());
}

void on_thread_started() { Interceptor::enable_on_this_thread(); }

/// What the preload library or, in a trainer that is linked with the core, the core's own copies of
/// its functions are to tell.
void register_hooks(bool kernel_serves_faults, std::size_t bytes_at_once, bool is_split) {
  SpillwayHooks hooks{};
  hooks.version = SPILLWAY_HOOKS_VERSION;
  hooks.thread_started = &on_thread_started;
  hooks.tensor_bytes = &tensor_bytes;
  hooks.bytes_at_once = bytes_at_once;
  hooks.kernel_serves_faults = kernel_serves_faults ? 1 : 0;
  hooks.hold_memory = &hold_memory;
  hooks.release_memory = &release_memory;
  hooks.thread_refused = &on_thread_refused;
  hooks.change_limit = &memory::change_own_limit;
  hooks.hand_on_limits = [](int is_over) { memory::hand_on_own_limits(is_over != 0); };
  hooks.lock_all_memory = &memory::lock_all_but_reserved;
  // Kernels of the CPU take such pointers, too, so that nobody is asked without need.
  if (has_torch_cuda()) {
    hooks.before_pointer = &Interceptor::before_pointer;
    hooks.python_begins = &watch_python_pointers;
  }
  if (is_split) {
    hooks.python_begins = nullptr;  // An address alone does not say whose tensor it is.
    hooks.program_begins = &spillway_core_is_loaded;
    hooks.program_ends = [](int code) {
      if (Core* const core = Core::running(); core != nullptr && code != 0) core->tell_of_failure();
      split::SplitProgram::program_ends();
    };
    hooks.program_leaves = [] { core().leave(); };
    hooks.hold_signal = &split::SplitProgram::hold_signal;
    hooks.before_pointer = [](const void* tensor, int writes) {
      split::SplitProgram::before_pointer(tensor, writes);
      Interceptor::before_pointer(tensor, writes);  // Of what is there by now.
    };
    hooks.archived_tensor = &split::SplitProgram::archived_tensor;
    hooks.archived_bytes = &split::SplitProgram::archived_bytes;
    hooks.absent_bytes = &split::SplitProgram::absent_bytes;
    hooks.read_record = &split::SplitProgram::read_record;
    hooks.read_part = &split::SplitProgram::read_part;
    hooks.keeps_file = &split::SplitProgram::keeps_file;
    hooks.before_flag = &split::SplitProgram::before_flag;
    hooks.leaf_made = &split::SplitProgram::leaf_made;
    hooks.parameter_registered = &split::SplitProgram::parameter_registered;
    if (has_torch_cuda()) hooks.numbers_apart = &split::SplitProgram::numbers_apart;
  }
  auto* const preloaded =
      reinterpret_cast<SpillwayPreloadRegister>(::dlsym(RTLD_DEFAULT, "spillway_preload_register"));
  if (preloaded == nullptr) {
    register_linked(hooks);
  } else if (preloaded(&hooks) != 0) {
    throw UnsupportedError("libspillway_preload.so and libspillway_core are of different versions; "
                           "install both from the same build");
  }
}

/// Functions at exit run after the thread-locals of the main thread were destroyed, one of which is
/// LibTorch's queue for backward: backward there reads freed memory, and crashes or hangs as the
/// heap happens to lie. Held by us too, that queue stays whole.
void keep_queue_for_functions_at_exit() {
  struct Engine : torch::autograd::Engine {
    using torch::autograd::Engine::init_local_ready_queue;
  };
  static const auto& queue = *new auto(std::make_shared<torch::autograd::ReadyQueue>());
  if (::getpid() == ::gettid())
    (torch::autograd::Engine::get_base_engine().*&Engine::init_local_ready_queue)(queue);
}

/// The process that has joined the ranks, by the environment of this one; 0: none.
pid_t joined_process() {
  const char* const text = std::getenv(SPILLWAY_JOINED_VARIABLE);
  return text == nullptr ? 0 : static_cast<pid_t>(std::strtol(text, nullptr, 10));
}

/// For a program that exits in a signal handler: what it has interrupted may hold any lock.
[[noreturn]] void abort_in_mid_operator(pipeline::Job& job) {
  constexpr unsigned kPatienceSeconds = 5;
  sigset_t alarm;
  ::sigemptyset(&alarm);
  ::sigaddset(&alarm, SIGALRM);
  ::signal(SIGALRM, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  ::alarm(kPatienceSeconds);
  job.abort(
      "the program exits in the middle of an operator, as a signal handler does that calls exit(): "
      "set a flag there, and exit where the program looks at it, or call _exit()");
}

/// MPI's own words about it may be lost where it ends all ranks at once.
void warn_of_small_files() {
  constexpr Bytes kEnough = 256_MiB;  // For the shared memory of a rank.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if (const Bytes most(limit.rlim_cur); most < kEnough)
    log_warning("files may not be larger than {} here (see ulimit -f), and MPI keeps the memory "
                "that ranks share in files: raise the limit where MPI does not start",
                most);
}

/// Ends the process where it cannot, as the ranks beside it do.
std::unique_ptr<transport::MpiTransport> make_transport() {
  // UCX, of MPICH, would redirect this process's calls for memory.
  ::setenv("UCX_MEM_EVENTS", "no", 0);
  warn_of_small_files();
  ::setenv(SPILLWAY_JOINED_VARIABLE, std::to_string(::getpid()).c_str(), 1);
  try {
    return transport::make_mpi_transport();
  } catch (const Error& error) {
    transport::tell_once_on_host([&] { log_error("{}", error.what()); });
    ::_exit(2);
  }
}

/// Where memory is LibTorch's own, nothing is paged.
Bytes least_paged_of(c10::Device gpu) {
  runtime::Runtime* const runtime = DeviceRuntimes::of(gpu);
  if (runtime == nullptr) return Bytes(std::numeric_limits<std::uint64_t>::max());
  return runtime::least_paged(core().run().settings(), runtime->engine().page_size());
}

/// Each rank may have a copy of its own.
std::string contents_of(const std::string& plan) {
  if (plan.empty()) return "no plan";
  try {
    return pipeline::hash_of_file(plan);
  } catch (const IoError& error) {
    return error.what();
  }
}

/// Ranks call theirs so: see device_rules.
runtime::Runtime* runtime_of_gpu() noexcept {
  return DeviceRuntimes::of(c10::Device(c10::DeviceType::CUDA, 0));
}

}  // namespace

Core& Core::start(const runtime::Settings& settings) {
  if (instance.load() != nullptr) throw ConfigError("Spillway runs already in this process");
  new Core(settings);  // It stays until the process is gone.
  watch_endings();
  keep_queue_for_functions_at_exit();
  return core();
}

bool is_forked_child() noexcept { return core().is_forked_child(); }

runtime::Run& run_of_this_process() { return core().run(); }

Core* Core::running() noexcept { return instance.load(); }

Core::Core(const runtime::Settings& settings)
    : run_(with_log(settings), runtime::surroundings_of_this_process(settings), clock_) {
  run_.trainer_facts = [this] { return trainer_facts(); };
  const auto serve_cuda = open_cuda_library(run_);
  // From here on LibTorch points to the runtime.
  interceptor_ = std::make_unique<Interceptor>(runtime(), settings.dispatch_key, settings.verify);
  const bool updates_on_host = settings.update == runtime::UpdatePlace::kHost;
  if (updates_on_host && !interceptor_->is_below_autograd())
    throw ConfigError("--update host needs to see the operators of optimizers, and sees others by "
                      "way of {} (leave --update host or --dispatch-key out)",
                      interceptor_->key_name());
  register_hooks(memory::serves_system_calls(run_.parts().mapper),
                 bytes_at_once(runtime().budget(), runtime().engine().page_size()), settings.split);
  // Nothing throws any more: what is registered goes by the instance, and other threads may fork.
  instance.store(this);
  if (updates_on_host) Interceptor::update_on_host();
  watch_forks();
  install_cpu_allocator(runtime());
  if (!interceptor_->is_below_autograd() && has_torch_cuda())
    leave_devices(message("operators are seen by way of {}", interceptor_->key_name()));
  else if (serve_cuda != nullptr)
    serve_cuda();
}

bool Core::is_started_by_rank() {
  const pid_t joined = joined_process();
  return joined > 0 && joined != ::getpid() && (::kill(joined, 0) == 0 || errno == EPERM);
}

void Core::join_ranks() {
  const runtime::Settings& settings = run_.settings();
  if (!settings.split) return;
  if (is_started_by_rank()) {
    Interceptor::tell_of_first_update([] {
      log_warning(
          "process {} trains alone, beside the ranks: process {}, which has started it, is the "
          "rank, as it has loaded LibTorch first; let the launcher start the trainer itself, or "
          "let its wrapper do without LibTorch",
          ::getpid(), joined_process());
    });
    return;
  }
  if (joined_process() == ::getpid())
    throw UnsupportedError("this process was a rank before it became this program (exec), and MPI "
                           "lets it join the ranks once: start a new run instead, or let this "
                           "program be a process beside the first one");
  if (!interceptor_->is_below_autograd())
    throw UnsupportedError("--split needs a dispatch key below autograd, and operators are seen by "
                           "way of {}",
                           interceptor_->key_name());
  if (!runtime::launched_rank()) {
    if (!settings.plan.empty())
      throw ConfigError(
          "--plan {} is for the ranks of a job, and no launcher of MPI (mpiexec, srun) "
          "has started this process (start as many ranks as the plan is for, or "
          "leave --plan out)",
          settings.plan);
    log_warning("no launcher of MPI (mpiexec, srun) has started this process: with --split it "
                "trains alone");
    return;
  }
  transport_ = make_transport();
  try {
    const std::vector<std::string>& hosts = transport_->job().hosts;
    const split::RankGpus gpus = split::gpus_of_rank(
        has_torch_cuda(), runtime::has_share_of(settings, {device::DeviceKind::kCuda, 0}));
    const split::CommonGpus common = split::agree_on_refusals(
        *transport_, hosts, split::objection_to(settings, transport_->rank(), transport_->ranks()),
        gpus);
    run_.share_gpu(split::ranks_on_gpu(*transport_, hosts, gpus.has_share, common));
    split_over_ranks();
  } catch (const ConfigError& error) {
    const split::AgreedError agreed("{}", error.what());  // All ranks have found the same.
    split_.reset();
    shards_.reset();
    transport_.reset();
    throw agreed;
  }
}

void Core::refuse_ranks(const std::string& reason) {
  const auto transport = make_transport();
  split::agree_on_refusals(*transport, transport->job().hosts, reason);
  throw Error("{}", reason);  // Not reached: the reason is not empty.
}

void Core::split_over_ranks() {
  const runtime::Settings& settings = run_.settings();
  pipeline::JobFacts facts = pipeline::facts_of_process();
  facts.emplace_back("Spillway", kVersion);
  facts.emplace_back("LibTorch", TORCH_VERSION);
  facts.emplace_back("number of threads", std::to_string(at::get_num_threads()));
  facts.emplace_back("CPU capability of LibTorch", at::get_cpu_capability());
  facts.emplace_back("--schedule", settings.schedule);
  facts.emplace_back("--replicas", std::to_string(settings.replicas));
  facts.emplace_back("--stages", std::to_string(settings.stages));
  std::string replicated;
  for (const std::string& pattern : settings.replicate)
    replicated += (replicated.empty() ? "" : ",") + pattern;
  facts.emplace_back("--replicate", replicated);
  facts.emplace_back("--rebalance", settings.rebalance ? "on" : "off");
  facts.emplace_back(pipeline::kProcessorFact, pipeline::processor_of());
  facts.emplace_back("the contents of --plan", contents_of(settings.plan));
  facts.emplace_back("--window", std::to_string(settings.window));
  facts.emplace_back("--min-storage", message("{}", settings.min_storage));
  facts.emplace_back("--check-control", settings.check_control ? "on" : "off");
  facts.emplace_back("--trace", settings.trace);
  facts.emplace_back("--shards", std::to_string(settings.shards));
  facts.emplace_back("--gradients",
                     settings.gradients == runtime::GradientOrder::kFast ? "fast" : "ordered");
  shards_ = std::make_unique<split::Shards>(*transport_, settings, facts);
  layout_ = split::layout_of(settings, shards_->transport().ranks());
  split_ = std::make_unique<split::SplitProgram>(
      split::SplitOptions{.runtime = runtime(),
                          .transport = shards_->transport(),
                          .job_transport = *transport_,
                          .job = shards_->job(),
                          .exchange = shards_->exchange(),
                          .hosts = transport_->job().hosts,
                          .layout = *layout_,
                          .plan = settings.plan,
                          .min_storage = settings.min_storage,
                          .traces = !settings.trace.empty(),
                          .replicate = settings.replicate,
                          // Shards that measure for themselves would cut in different ways.
                          .rebalances = settings.rebalance && settings.shards == 1,
                          .hidden_keys = Interceptor::keys(),
                          .compute = &Interceptor::compute,
                          .run_beside = &Interceptor::run_beside,
                          .try_on_gpu = &Interceptor::try_on_gpu,
                          .runtime_of_gpu = &runtime_of_gpu,
                          .least_paged = &least_paged_of,
                          .deleter = cpu_allocator_deleter()});
  answer_signals();
  run_.ranks_at_end = [this](const runtime::RunStatistics& mine) { return gather(mine); };
  run_.trace_of_ranks = [this](std::vector<runtime::RecordedTrace> mine, bool joins) {
    return trace_of_ranks(std::move(mine), joins);
  };
}

/// Whoever wonders why nothing moves sends SIGUSR2, to a rank or to the launcher.
void Core::answer_signals() {
  {
    const std::lock_guard lock(saying_);
    said_ = &shards_->job();
  }
  runtime::answer_signal(SIGUSR2, [] { core().say_what_it_does(); });
}

void Core::say_what_it_does() {
  const std::lock_guard lock(saying_);
  if (said_ == nullptr) return;
  for (const std::string& line : said_->describe()) log_line(LogLevel::kInfo, line);
}

void Core::watch_forks() {
  ::pthread_atfork(
      [] {
        split::SplitProgram::before_fork();
        core().runtime().before_fork();
        DeviceRuntimes::for_each([](runtime::Runtime& device) { device.before_fork(); });
      },
      [] {
        DeviceRuntimes::for_each([](runtime::Runtime& device) { device.after_fork_in_parent(); });
        core().runtime().after_fork_in_parent();
      },
      [] {
        Interceptor::disable_for_good();
        detach_cpu_allocator();
        split::SplitProgram::leave_to_parent();
        core().is_child_.store(true);
        runtime::unwatch_endings_in_child();
        DeviceRuntimes::for_each([](runtime::Runtime& device) { device.after_fork_in_child(); });
        core().runtime().after_fork_in_child();
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

runtime::TrainerFacts Core::trainer_facts() const {
  runtime::TrainerFacts facts;
  facts.spillway_version = kVersion;
  facts.libtorch_version = TORCH_VERSION;
  facts.dispatch_key = interceptor_->key_name();
  facts.threads = static_cast<std::uint32_t>(at::get_num_threads());
  const CallRecorder* const records = Interceptor::records();
  facts.records_calls = records != nullptr;
  if (records == nullptr) return facts;
  facts.recorded_peak = records->most_copied();
  facts.verified = records->verified();
  DeviceRuntimes::for_each_record(
      [&](const CallRecorder& device) { facts.verified += device.verified(); });
  return facts;
}

void Core::leave() noexcept {
  // Other ranks may need what this one has: an archive is not written before the first one has it.
  if (::getpid() == process_ && is_between_operators()) finish(runtime::Runtime::Ending::kByItself);
}

bool Core::is_between_operators() const noexcept {
  return split_ != nullptr && split_->is_on_this_thread() && !split_->is_in_call();
}

void Core::tell_of_failure() noexcept {
  if (is_child_.load() || !is_between_operators()) return;
  try {
    run_.warn_of_missing_gpu();
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
}

void Core::finish(runtime::Runtime::Ending ending) noexcept {
  if (is_child_.load()) return;
  tell_of_other_allocator();
  if (split_ == nullptr || ending != runtime::Runtime::Ending::kByItself) {
    run_.finish(ending);
    return;
  }
  if (!split_->is_on_this_thread())
    shards_->job().abort(
        "the program exits on another thread than the one that it trains on, whose work is "
        "not done: return from main");
  if (split_->is_in_call()) abort_in_mid_operator(shards_->job());
  try {
    split_->drain();
    is_drained_.store(true);
    run_.finish(ending);
    split_->finish();
  } catch (const std::exception& error) {
    log_error("{}", error.what());
    run_.finish(ending);
  }
  {
    const std::lock_guard lock(saying_);
    said_ = nullptr;
  }
  // Other threads may be on their way through it.
  static_cast<void>(split_.release());
  shards_.reset();
  transport_.reset();
}

std::optional<runtime::RanksReport> Core::gather(const runtime::RunStatistics& mine) {
  if (!is_drained_.load()) return std::nullopt;  // Others may work for long.
  runtime::RankFigures figures;
  figures.threads = static_cast<std::uint32_t>(at::get_num_threads());
  figures.budget_bytes = mine.budget.count();
  figures.peak_bytes = mine.memory.counted_peak.count();
  figures.spilled_bytes = mine.memory.spilled.count();
  if (!mine.devices.empty()) {
    const runtime::RunStatistics& gpu = mine.devices.front();
    figures.gpu_budget_bytes = gpu.budget.count();
    figures.gpu_peak_bytes = gpu.memory.counted_peak.count();
    figures.gpu_spilled_bytes = gpu.memory.spilled.count();
  }
  runtime::RanksReport report;
  report.schedule = layout_->schedule + (split_->has_given_up_lists() ? " without its lists" : "");
  report.replicas = layout_->placement.pipelines();
  report.shards = run_.settings().shards;
  report.rows = split_->gather(figures);
  if (report.rows.empty()) return std::nullopt;
  report.moves = split_->layer_moves();
  for (std::size_t rank = 0; rank < report.rows.size(); ++rank)
    report.rows[rank].host = transport_->job().hosts[rank];
  return report;
}

runtime::RanksTrace Core::trace_of_ranks(std::vector<runtime::RecordedTrace> mine, bool joins) {
  const Rank rank = transport_->rank();
  const std::string shard = shards_->count() == 1 ? "" : message("shard {}, ", shards_->number());
  for (runtime::RecordedTrace& one : mine)
    one.trace.title = message("{}rank {} ({}): {}", shard, rank.value(),
                              transport_->job().hosts[rank.value()], one.trace.title);
  if (is_drained_.load()) return split_->trace(std::move(mine), joins);
  if (joins) mine.front().summary += "; of this rank alone, as the program did not end by itself";
  return runtime::on_one_axis(std::move(mine));
}

}  // namespace spillway::torch_binding
