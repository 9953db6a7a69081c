#pragma once

#include <string>
#include <vector>

#include "spillway/runtime/settings.h"

namespace spillway::cli {

/// The arguments of `spillway run`, taken apart: what is for Spillway, and the program's own.
struct RunArguments {
  std::vector<std::string> options;
  std::vector<std::string> program;  ///< Name and arguments.
};

/// Splits at "--", or at the first word that is neither an option nor the value of one.
RunArguments split_run_arguments(const std::vector<std::string>& arguments);

/// LD_PRELOAD with `preload` in front, and without another copy of it.
std::string with_preload(const std::string& preload, const std::string& existing);

/// Becomes the program, so returns only an exit code for why it could not. Throws ConfigError and
/// UnsupportedError. `given` are the options of the command line.
int run_program(const runtime::NamedTexts& given, const std::vector<std::string>& program);

}  // namespace spillway::cli
