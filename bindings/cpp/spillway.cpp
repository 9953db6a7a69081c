#include "spillway/spillway.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core.h"
#include "spillway/base/log.h"

namespace spillway {
namespace {

torch_binding::Core& running() {
  torch_binding::Core* core = torch_binding::Core::running();
  if (core == nullptr) throw ConfigError("Spillway has not been started: call spillway::start()");
  return *core;
}

bool is_under_command() { return ::dlsym(RTLD_DEFAULT, "spillway_preload_register") != nullptr; }

/// The program begins anew, with the process, its arguments and what its launcher has given it.
[[noreturn]] void run_under_command(const runtime::NamedTexts& options) {
  Dl_info library{};
  ::dladdr(reinterpret_cast<const void*>(&is_under_command), &library);
  const std::filesystem::path command =
      std::filesystem::path(library.dli_fname).parent_path() / "../bin/spillway";
  if (::access(command.c_str(), X_OK) != 0)
    throw UnsupportedError("start(): split: a split program runs under the command spillway, which "
                           "is not at {} (install it with the library, or start the program by "
                           "spillway run --split)",
                           command.string());
  for (const auto& [key, value] : options)
    ::setenv(runtime::environment_name(key).c_str(), value.c_str(), 1);
  std::vector<std::string> words = runtime::words_of_this_process();
  words.insert(words.begin(), {command.string(), "run", "--"});
  words[3] = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(command.c_str(), pointers.data());
  throw IoError("start(): split: {} cannot be run: {}", command.string(), std::strerror(errno));
}

}  // namespace

void start(const StartOptions& options) {
  if (torch_binding::Core* const core = torch_binding::Core::running()) {
    // What runs a split program anew has given it these options.
    if (!options.split || core->split() == nullptr)
      log_warning("spillway::start(): already running, with the options of the command or of the "
                  "first call");
    return;
  }
  // Under the command it would run by now; but of ranks the one that could not start tells others.
  if (is_under_command()) spillway_core_is_loaded();
  runtime::SettingSources sources;
  sources.environment = runtime::spillway_environment();
  sources.options = options.settings;
  sources.options_origin = "start(): ";
  if (!options.budget.empty()) sources.options.emplace_back("budget", options.budget);
  std::string places;
  for (const std::string& place : options.nvme) places += (places.empty() ? "" : ",") + place;
  if (!places.empty()) sources.options.emplace_back("nvme", places);
  if (options.split) sources.options.emplace_back("split", "on");
  if (options.shards != 1) sources.options.emplace_back("shards", std::to_string(options.shards));
  const runtime::Settings settings = runtime::load_settings(sources);
  if (settings.split && runtime::launched_rank() && !is_under_command())
    run_under_command(sources.options);
  torch_binding::Core::start(settings).join_ranks();
}

void micro_batch() {
  torch_binding::Core& core = running();
  if (core.split() != nullptr && !core.is_forked_child()) core.split()->begin_micro_batch();
}

std::uint32_t rank() {
  const auto* const transport = running().transport();
  return transport == nullptr ? 0 : transport->rank().value();
}

std::uint32_t ranks() {
  const auto* const transport = running().transport();
  return transport == nullptr ? 1 : transport->ranks();
}

std::uint32_t shard() {
  const auto* const shards = running().shards();
  return shards == nullptr ? 0 : shards->number();
}

std::uint32_t shards() {
  const auto* const shards = running().shards();
  return shards == nullptr ? 1 : shards->count();
}

void begin_step() {
  torch_binding::Core& core = running();
  if (!core.is_forked_child()) core.runtime().begin_step();
}

Statistics statistics() {
  if (running().is_forked_child())
    throw UnsupportedError(
        "a forked child is not under Spillway: ask for statistics in its parent");
  const runtime::Runtime& runtime = running().runtime();
  const runtime::RuntimeCounts now = runtime.counts();
  Statistics result;
  result.budget_bytes = runtime.budget().count();
  result.peak_bytes = now.memory.counted_peak.count();
  result.needed_bytes = now.memory.live_peak.count();
  result.spilled_bytes = now.memory.spilled.count();
  result.fetched_bytes = now.memory.fetched.count();
  result.steps = now.steps;
  result.ops = now.ops;
  return result;
}

}  // namespace spillway
