#include "spillway/pipeline/agreement/process_facts.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string_view>

#include "spillway/base/shown_text.h"

namespace spillway::pipeline {
namespace {

namespace fs = std::filesystem;

/// Variables that change the numbers of a program, or the order in which it does things.
constexpr std::array<std::string_view, 6> kNames{"OMP_NUM_THREADS",  "OMP_DYNAMIC",
                                                 "OMP_THREAD_LIMIT", "OMP_SCHEDULE",
                                                 "PYTHONHASHSEED",   "GLIBC_TUNABLES"};
constexpr std::array<std::string_view, 5> kStarts{"ATEN_", "DNNL_", "MKL_", "ONEDNN_", "OPENBLAS_"};

bool changes_numbers(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kStarts.begin(), kStarts.end(),
                     [name](std::string_view start) { return name.starts_with(start); });
}

/// Whether kernels are chosen by an instruction set of that name.
bool chooses_kernels(std::string_view name) {
  constexpr std::array<std::string_view, 9> kKinds{"sse", "ssse", "avx",   "fma", "f16c",
                                                   "amx", "bmi",  "asimd", "sve"};
  return std::any_of(kKinds.begin(), kKinds.end(),
                     [name](std::string_view kind) { return name.starts_with(kind); });
}

}  // namespace

std::string hash_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> piece(1u << 20);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  while (file) {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    XXH3_64bits_update(state.get(), piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.eof())
    throw IoError("{} cannot be read, which all ranks have to compare", path.string());
  return message("XXH3 {}", XXH3_64bits_digest(state.get()));
}

namespace {

/// The texts of a file of /proc, each of which ends with a zero.
std::vector<std::string> texts_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> texts;
  for (std::string text; std::getline(file, text, '\0');) texts.push_back(text);
  return texts;
}

}  // namespace

std::string processor_of(const fs::path& information) {
  constexpr std::array<std::string_view, 5> kNames{"vendor_id", "cpu family", "model",
                                                   "CPU implementer", "CPU part"};
  std::ifstream file(information);
  std::string text;
  // Of the first processor.
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || colon + 2 > line.size()) continue;
    const std::string name = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const std::string value = line.substr(colon + 2);
    if (std::find(kNames.begin(), kNames.end(), name) != kNames.end())
      text += message("{}{} {}", text.empty() ? "" : ", ", name, value);
    if (name != "flags" && name != "Features") continue;
    std::istringstream words(value);
    std::vector<std::string> kinds;
    for (std::string word; words >> word;)
      if (chooses_kernels(word)) kinds.push_back(word);
    std::sort(kinds.begin(), kinds.end());
    for (const std::string& kind : kinds) text += message("{}{}", text.empty() ? "" : " ", kind);
  }
  return text;
}

JobFacts facts_of_process(const fs::path& process) {
  std::error_code error;
  JobFacts facts{{"the program", fs::read_symlink(process / "exe", error).string()},
                 {"the hash of the program", hash_of_file(process / "exe")}};
  std::vector<std::string> arguments = texts_of(process / "cmdline");
  // What the program is called by may be a way to it that hangs on the host.
  if (!arguments.empty()) arguments.erase(arguments.begin());
  std::string line;
  for (const std::string& argument : arguments)
    line += message("{}{}", line.empty() ? "" : " ", shell_word(argument));
  facts.emplace_back(kArgumentsFact, line);
  for (const std::string& argument : arguments)
    if (argument.ends_with(".py") && fs::is_regular_file(process / "cwd" / argument))
      facts.emplace_back("the hash of " + argument, hash_of_file(process / "cwd" / argument));
  std::vector<std::string> variables = texts_of(process / "environ");
  std::sort(variables.begin(), variables.end());
  for (const std::string& variable : variables) {
    const std::size_t end = variable.find('=');
    const std::string name = variable.substr(0, end);
    if (end != std::string::npos && changes_numbers(name))
      facts.emplace_back(name, variable.substr(end + 1));
  }
  return facts;
}

}  // namespace spillway::pipeline
