#include "dispatch_key_trial.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "child_output.h"
#include "exit_codes.h"
#include "spillway/base/error.h"
#include "spillway/preload/active.h"
#include "spillway/preload/dispatch_key.h"

namespace spillway::cli {
namespace {

constexpr unsigned kLongestTrial = 120;  // Seconds; loading LibTorch from a slow disk takes some.
constexpr const char* kObserver = "record-function";

// Marks the answer among what LibTorch may print.
constexpr std::string_view kTaken = "dispatch key taken: ";
constexpr std::string_view kRefused = "no dispatch key: ";

}  // namespace

Finding try_dispatch_key(const std::string& command, const std::string& torch,
                         const std::string& core, const std::string& requested) {
  const ChildOutcome outcome =
      outcome_of({command, std::string(kTrialCommand), torch, core, requested});
  const std::string taken = behind(kTaken, outcome.output);
  if (outcome.ending.empty() && taken == kObserver && requested != kObserver)
    return {"dispatch key", taken, Verdict::kWarning,
            "every key is in use, so operators are only observed, which is slower: run without the "
            "libraries that register on LibTorch's dispatcher"};
  if (outcome.ending.empty() && !taken.empty()) return {"dispatch key", taken};
  const std::string refused = behind(kRefused, outcome.output);
  if (!refused.empty())
    return {
        "dispatch key", requested + " cannot be taken", Verdict::kProblem,
        message("{} (choose another with SPILLWAY_DISPATCH_KEY or dispatch-key, such as auto, or "
                "install LibTorch and Spillway again)",
                refused)};
  return {"dispatch key",
          message("the trial with {} and {} ended with {}", torch, core,
                  outcome.ending.empty() ? "no answer" : outcome.ending),
          Verdict::kProblem,
          message("install that LibTorch and Spillway again; the last it said: {}",
                  outcome.output.empty() ? "nothing" : last_line(outcome.output))};
}

int run_trial(const std::vector<std::string>& words) {
  if (words.size() != 3) throw ConfigError("{} is not for users: spillway doctor", kTrialCommand);
  ::alarm(kLongestTrial);
  ::unsetenv(SPILLWAY_ACTIVE_VARIABLE);  // Or the core would start a run.
  if (::dlopen(words[0].c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
    answer(kRefused, message("LibTorch cannot be loaded: {}", ::dlerror()), kFoundProblem);
  void* const core = ::dlopen(words[1].c_str(), RTLD_NOW | RTLD_LOCAL);
  if (core == nullptr)
    answer(kRefused, message("the core library cannot be loaded: {}", ::dlerror()), kFoundProblem);
  const auto try_key =
      reinterpret_cast<SpillwayTryDispatchKey>(::dlsym(core, SPILLWAY_TRY_DISPATCH_KEY));
  if (try_key == nullptr)
    answer(kRefused, message("{} is of another version than this command", words[1]),
           kFoundProblem);
  std::array<char, 2048> text{};
  const int code = try_key(words[2].c_str(), text.data(), text.size());
  answer(code == 0 ? kTaken : kRefused, text.data(), code == 0 ? kDone : kFoundProblem);
}

}  // namespace spillway::cli
