// What happens when the core library is loaded: under `spillway run` it starts by itself. And what
// `spillway doctor` asks it, in a process that trains nothing.

#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "core.h"
#include "interceptor.h"
#include "spillway/base/log.h"
#include "spillway/preload/active.h"
#include "spillway/preload/dispatch_key.h"
#include "spillway/preload/hooks.h"
#include "spillway/split/refusals.h"

namespace {

/// Why this rank of a split program could not start, while the others wait for it in vain.
std::string& refusal() {
  static auto& text = *new std::string();
  return text;
}

[[noreturn]] void refuse(const std::string& reason) {
  spillway::log_error("{}", reason);
  // Training on without the budget that was asked for could take the machine down.
  ::_exit(2);
}

__attribute__((constructor)) void start_under_the_command() {
  if (spillway_is_active() == 0) return;
  bool is_split_rank = false;
  try {
    const spillway::runtime::Settings settings = spillway::runtime::settings_from_environment();
    is_split_rank = settings.split && spillway::runtime::launched_rank().has_value() &&
                    !spillway::torch_binding::Core::is_started_by_rank();
    spillway::torch_binding::Core::start(settings);
  } catch (const std::exception& error) {
    if (!is_split_rank) refuse(error.what());
    refusal() = error.what();
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void spillway_core_is_loaded() {
  using spillway::torch_binding::Core;
  static bool is_told = false;
  if (std::exchange(is_told, true)) return;
  Core* const core = Core::running();
  try {
    if (!refusal().empty()) Core::refuse_ranks(refusal());
    if (core != nullptr) core->join_ranks();
  } catch (const spillway::split::AgreedError& error) {
    // One rank tells it.
    if (spillway::runtime::launched_rank().value_or("0") != "0") ::_exit(2);
    refuse(error.what());
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

extern "C" __attribute__((visibility("default"))) int spillway_try_dispatch_key(
    const char* requested, char* text, size_t size) {
  try {
    const std::string name = spillway::torch_binding::take_dispatch_key(requested);
    std::snprintf(text, size, "%s", name.c_str());
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(text, size, "%s", error.what());
    return 1;
  }
}
