#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/runtime/settings/settings.h"

namespace spillway::cli {

/// The arguments of `spillway run`, taken apart: what is for Spillway, and the program's own.
struct RunArguments {
  std::vector<std::string> options;
  std::vector<std::string> program;  ///< Name and arguments.
};

/// Splits at "--", or at the first word that is neither an option nor the value of one. `more`:
/// options beside the settings, with what stands behind each ("FILE").
RunArguments split_run_arguments(const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string_view>& more = {});

/// LD_PRELOAD with `preload` in front, and without another copy of it. Runtimes of sanitizers stay
/// before it: they refuse to come later.
std::string with_preload(const std::string& preload, const std::string& existing);

/// Facts about the program that `run_program` starts.
struct ProgramStart {
  std::string profile_out;      ///< The setting, with %p and %r.
  std::string path;             ///< Path of the program.
  bool is_linked_with_torch;    ///< False: it may load it later, or start what does.
  std::function<int()> become;  ///< Becomes it; returns an exit code for why it could not.
};

/// Becomes the program, so returns only an exit code for why it could not; or does what `start`
/// does instead. Throws ConfigError and UnsupportedError. A rank of a split program tells these,
/// and ends the others where only some cannot. `given` are the options of the command line.
int run_program(const runtime::NamedTexts& given, const std::vector<std::string>& program,
                const std::function<int(const ProgramStart&)>& start = {});

}  // namespace spillway::cli
