#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "findings.h"
#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

/// The command's word for a look at the GPUs, for which `doctor` starts a process of its own: a
/// driver may crash or hang, and a GPU that is opened keeps memory until the process ends. Not for
/// users.
inline constexpr std::string_view kGpuTrialCommand = "try-gpus";

/// Looks at the GPUs as a program with that runtime of CUDA (path of libcudart.so.13) sees them, in
/// a child process of `command` (the path of this program). `given`: options, for the budgets.
std::vector<Finding> try_gpus(const std::string& command, const std::string& cuda_runtime,
                              const runtime::NamedTexts& given);

/// The child: the words are the path of the runtime, and a key and a value of each option. Prints
/// what it finds; returns an exit code.
int run_gpu_trial(const std::vector<std::string>& words);

}  // namespace spillway::cli
