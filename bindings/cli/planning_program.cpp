#include "planning_program.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "child_output.h"
#include "spillway/base/error.h"
#include "spillway/base/shown_text.h"

namespace spillway::cli {
namespace {

namespace fs = std::filesystem;

/// What makes the program, in the folder of a build or beside an installed command.
std::string how_to_get_it(const fs::path& prefix) {
  std::error_code error;
  if (fs::exists(prefix / "CMakeCache.txt", error))
    return message("build it: cmake --build {} --target spillway_planning_program",
                   shell_word(prefix.string()));
  return "build all of Spillway and install it there: cmake --build --preset release && cmake "
         "--install build/release --prefix " +
         shell_word(prefix.string());
}

}  // namespace

void become_planning_program(const std::string& command_path, std::vector<std::string> words) {
  const fs::path folder = fs::path(command_path).parent_path();
  const std::string program = (folder / kPlanningProgram).string();
  words.insert(words.begin(), program);
  ::execv(program.c_str(), exec_arguments(words).data());
  const int reason = errno;
  if (reason == ENOENT)
    throw ConfigError("there is no {}, which `spillway {}` needs ({})", shell_word(program),
                      words[1], how_to_get_it(folder.parent_path()));
  throw ConfigError("cannot start {}, which `spillway {}` needs: {}", shell_word(program), words[1],
                    std::strerror(reason));
}

}  // namespace spillway::cli
