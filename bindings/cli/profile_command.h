#pragma once

#include <string>
#include <vector>

#include "profile_options.h"
#include "run_command.h"

namespace spillway::cli {

/// Whether "--import" is among the words of `spillway profile`: there is no program then.
bool imports_trace(const std::vector<std::string>& words);

/// Splits as `split_run_arguments` does, with the command's own options among those with a value.
RunArguments split_profile_arguments(const std::vector<std::string>& words);

/// Runs the program as `run_program` does and has it write its profile. `given` are the options of
/// a run. Throws ConfigError, also for a program or a file that is missing.
int record_profile(runtime::NamedTexts given, const ProfileOptions& options,
                   const std::vector<std::string>& program);

}  // namespace spillway::cli
