#pragma once

#include <string>
#include <vector>

#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

/// The words of `spillway profile` up to the program, with its own options taken out.
struct ProfileArguments {
  bool imports = false;  ///< "--import" is among the words: there is no program.
  std::vector<std::string> options;
  std::vector<std::string> program;
};

/// Splits as `split_run_arguments` does, with --out, --steps and --kind as options that take a
/// value.
ProfileArguments split_profile_arguments(const std::vector<std::string>& words);

/// Runs the program as `run_program` does and has it write its profile to `out`. `given` are the
/// options of a run, `steps` and `kind` the words of --steps and --kind, empty when not given.
/// Throws ConfigError, also for a program or a file that is missing.
int record_profile(runtime::NamedTexts given, const std::string& out, const std::string& steps,
                   const std::string& kind, const std::vector<std::string>& program);

}  // namespace spillway::cli
