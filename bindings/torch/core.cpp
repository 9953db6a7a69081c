#include "core.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <pthread.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "call_recorder.h"
#include "cpu_allocator.h"
#include "held_memory.h"
#include "linked_hooks.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/memory/kernel_refusal.h"
#include "spillway/memory/locked_memory.h"
#include "spillway/memory/own_limits.h"
#include "spillway/preload/hooks.h"
#include "spillway/runtime/endings.h"
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
void register_hooks(bool kernel_serves_faults, std::size_t bytes_at_once) {
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

}  // namespace

Core& Core::start(const runtime::Settings& settings) {
  if (instance.load() != nullptr) throw ConfigError("Spillway runs already in this process");
  new Core(settings);  // It stays until the process is gone.
  watch_endings();
  keep_queue_for_functions_at_exit();
  return core();
}

Core* Core::running() noexcept { return instance.load(); }

Core::Core(const runtime::Settings& settings)
    : run_(with_log(settings), runtime::surroundings_of_this_process(settings), clock_) {
  run_.trainer_facts = [this] { return trainer_facts(); };
  register_hooks(memory::serves_system_calls(run_.parts().mapper),
                 bytes_at_once(runtime().budget(), runtime().engine().page_size()));
  // May throw; from here on LibTorch points to the runtime.
  interceptor_ = std::make_unique<Interceptor>(runtime(), settings.dispatch_key, settings.verify);
  instance.store(this);  // From here on other threads may fork.
  watch_forks();
  install_cpu_allocator(runtime());
}

void Core::watch_forks() {
  ::pthread_atfork([] { core().runtime().before_fork(); },
                   [] { core().runtime().after_fork_in_parent(); },
                   [] {
                     Interceptor::disable_for_good();
                     detach_cpu_allocator();
                     core().is_child_.store(true);
                     runtime::unwatch_endings_in_child();
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
  return facts;
}

void Core::finish(runtime::Runtime::Ending ending) noexcept {
  if (is_child_.load()) return;
  tell_of_other_allocator();
  run_.finish(ending);
}

}  // namespace spillway::torch_binding
