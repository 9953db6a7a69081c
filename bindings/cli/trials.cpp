#include "trials.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "child_output.h"
#include "exit_codes.h"
#include "gpu_findings.h"
#include "spillway/base/error.h"
#include "spillway/preload/active.h"
#include "spillway/preload/dispatch_key.h"

namespace spillway::cli {
namespace {

// Seconds; loading LibTorch from a slow disk takes some, and so does a driver without a daemon for
// each GPU.
constexpr unsigned kLongestTrial = 120;
constexpr const char* kObserver = "record-function";

// Marks the answer among what LibTorch may print.
constexpr std::string_view kTaken = "dispatch key taken: ";
constexpr std::string_view kRefused = "no dispatch key: ";

constexpr std::string_view kFound = "found: ";

/// A trial that has crashed, hung or said something else.
Finding without_answer(const char* subject, const std::string& libraries,
                       const ChildOutcome& outcome, const char* mend) {
  return {subject,
          message("the trial with {} ended with {}", libraries,
                  outcome.ending.empty() ? "no answer" : outcome.ending),
          Verdict::kProblem,
          message("{}; the last it said: {}", mend,
                  outcome.output.empty() ? "nothing" : last_line(outcome.output))};
}

OpenedGpu open_gpu(device::DeviceId id) {
  try {
    return {device::cuda_backend().open(id)->memory().free, {}};
  } catch (const UnsupportedError& error) {
    return {{}, error.what()};
  } catch (const Error& error) {
    return {{}, message("{}; nvidia-smi shows who uses it", error.what())};
  }
}

/// A library of the LibTorch whose runtime of CUDA this is: beside it, or where its own package
/// lies.
std::string library_beside(const std::filesystem::path& runtime, const char* name,
                           const char* package) {
  const std::filesystem::path folder = runtime.parent_path();
  for (const std::filesystem::path& path :
       {folder / name, folder.parent_path().parent_path() / package / "lib" / name}) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path.string();
  }
  return {};
}

transport::NcclFacts nccl_beside(const std::filesystem::path& runtime) {
  const std::string path = library_beside(runtime, "libnccl.so.2", "nccl");
  return path.empty() ? transport::nccl_facts() : transport::nccl_facts(path);
}

std::string why_no_direct_files_beside(const std::filesystem::path& runtime) {
  const std::string path = library_beside(runtime, "libcufile.so.0", "cufile");
  if (!path.empty()) ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  return device::why_no_direct_files();
}

// What the child is asked for.
constexpr std::string_view kAll = "all";
constexpr std::string_view kBudgets = "budgets";

ChildOutcome outcome_of_trial(const std::string& command, const std::string& cuda_runtime,
                              std::string_view what, const runtime::NamedTexts& given) {
  std::vector<std::string> words{command, std::string(kGpuTrialCommand), cuda_runtime,
                                 std::string(what)};
  for (const auto& [key, value] : given) words.insert(words.end(), {key, value});
  return outcome_of(words);
}

/// All that can be told of the GPUs, as JSON.
std::string look_at_gpus(const device::CudaFacts& facts, const std::string& cuda_runtime,
                         const runtime::Settings& settings) {
  std::vector<OpenedGpu> gpus;
  for (const device::CudaDeviceFacts& gpu : facts.devices) gpus.push_back(open_gpu(gpu.id));
  std::vector<Finding> findings = check_cuda(facts, gpus, settings);
  if (!gpus.empty()) {
    findings.push_back(check_direct_files(why_no_direct_files_beside(cuda_runtime)));
    findings.push_back(check_nccl(nccl_beside(cuda_runtime), gpus.size()));
  }
  const nlohmann::json all{{"gpus", gpus.size()}, {"findings", findings}};
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

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
  return without_answer("dispatch key", message("{} and {}", torch, core), outcome,
                        "install that LibTorch and Spillway again");
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

FoundGpus try_gpus(const std::string& command, const std::string& cuda_runtime,
                   const runtime::NamedTexts& given) {
  const ChildOutcome outcome = outcome_of_trial(command, cuda_runtime, kAll, given);
  const std::string found = behind(kFound, outcome.output);
  if (outcome.ending.empty() && !found.empty()) {
    const nlohmann::json all = nlohmann::json::parse(found);
    return {all.at("findings").get<std::vector<Finding>>(), all.at("gpus").get<std::size_t>()};
  }
  return {{without_answer("CUDA", cuda_runtime, outcome,
                          "nvidia-smi may tell what is wrong with the driver or a GPU")}};
}

std::string objection_to_gpu_budgets(const std::string& command, const std::string& cuda_runtime,
                                     const runtime::NamedTexts& given) {
  const ChildOutcome outcome = outcome_of_trial(command, cuda_runtime, kBudgets, given);
  return outcome.ending.empty() ? behind(kFound, outcome.output) : std::string();
}

int run_gpu_trial(const std::vector<std::string>& words) {
  if (words.size() % 2 != 0 || words.empty())
    throw ConfigError("{} is not for users: spillway doctor", kGpuTrialCommand);
  runtime::NamedTexts given;
  for (std::size_t i = 2; i < words.size(); i += 2) given.emplace_back(words[i], words[i + 1]);
  const runtime::Settings settings =
      runtime::load_settings({given, runtime::spillway_environment()});
  ::alarm(kLongestTrial);
  // As the program has it; what cannot be loaded is told by those that look for it next.
  ::dlopen(words[0].c_str(), RTLD_NOW | RTLD_GLOBAL);
  const device::CudaFacts facts = device::cuda_facts();
  const std::string text = words[1] == kBudgets ? objection_to_budgets(facts, settings)
                                                : look_at_gpus(facts, words[0], settings);
  answer(kFound, text, kDone);
}

}  // namespace spillway::cli
