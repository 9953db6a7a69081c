#include "spillway/spillway.h"

#include "core.h"
#include "spillway/base/log.h"

namespace spillway {
namespace {

torch_binding::Core& running() {
  torch_binding::Core* core = torch_binding::Core::running();
  if (core == nullptr) throw ConfigError("Spillway has not been started: call spillway::start()");
  return *core;
}

}  // namespace

void start(const StartOptions& options) {
  if (torch_binding::Core::running() != nullptr) {
    log_warning(
        "spillway::start(): already running, with the options of the command or of the first call");
    return;
  }
  runtime::SettingSources sources;
  sources.environment = runtime::spillway_environment();
  sources.options = options.settings;
  sources.options_origin = "start(): ";
  if (!options.budget.empty()) sources.options.emplace_back("budget", options.budget);
  std::string places;
  for (const std::string& place : options.nvme) places += (places.empty() ? "" : ",") + place;
  if (!places.empty()) sources.options.emplace_back("nvme", places);
  torch_binding::Core::start(runtime::load_settings(sources));
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
