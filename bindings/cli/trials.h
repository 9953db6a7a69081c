#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "findings.h"
#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

/// The command's word for the trial, which `doctor` starts as a process of its own: LibTorch and
/// the core are loaded there, which may crash or hang. Not for users.
inline constexpr std::string_view kTrialCommand = "try-dispatch-key";

/// Tries which dispatch key a run would take, with that LibTorch and that core, in a child process
/// of `command` (the path of this program).
Finding try_dispatch_key(const std::string& command, const std::string& torch,
                         const std::string& core, const std::string& requested);

/// The child: words are the paths of LibTorch and the core, and the requested key. Prints the key's
/// name or what is wrong; returns an exit code, and does not leave static objects of LibTorch to be
/// destroyed.
int run_trial(const std::vector<std::string>& words);

/// The command's word for a look at the GPUs, for which `doctor` starts a process of its own: a
/// driver may crash or hang, and a GPU that is opened keeps memory until the process ends. Not for
/// users.
inline constexpr std::string_view kGpuTrialCommand = "try-gpus";

struct FoundGpus {
  std::vector<Finding> findings;
  std::size_t count = 0;  ///< 0: there are none, or the trial has failed.
};

/// Looks at the GPUs as a program with that runtime of CUDA (path of libcudart.so.13) sees them, in
/// a child process of `command` (the path of this program). `given`: options, for the budgets.
FoundGpus try_gpus(const std::string& command, const std::string& cuda_runtime,
                   const runtime::NamedTexts& given);

/// In the same way, but opens no GPU: why the budgets of GPUs cannot be as they were given; empty:
/// they can, or nothing is known.
std::string objection_to_gpu_budgets(const std::string& command, const std::string& cuda_runtime,
                                     const runtime::NamedTexts& given);

/// The child: the words are the path of the runtime, what is asked for, and a key and a value of
/// each option. Prints what it finds; returns an exit code.
int run_gpu_trial(const std::vector<std::string>& words);

}  // namespace spillway::cli
