#include <string_view>

#include "spillway/base/shown_text.h"
#include "spillway/profile/step_profile.h"

namespace spillway::profile {
namespace {

constexpr std::size_t kMostBytesOfCommand = 400;

bool is_python(std::string_view program) {
  program.remove_prefix(program.rfind('/') + 1);  // npos + 1 is 0.
  constexpr std::string_view kName = "python";
  return program.starts_with(kName) &&
         program.find_first_not_of("0123456789.", kName.size()) == std::string_view::npos;
}

/// What an interpreter's words name: a script or "-m MODULE"; empty: neither.
std::string python_program(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.empty() || word.front() != '-') return word;
    if (word == "-m" && i + 1 < words.size()) return word + " " + words[i + 1];
    if (word == "-c" || word == "-") return {};
    if (word == "-W" || word == "-X" || word == "--check-hash-based-pycs") ++i;
  }
  return {};
}

}  // namespace

void set_program(ProfileOrigin& origin, const std::vector<std::string>& words) {
  if (words.empty()) return;
  origin.program = is_python(words.front()) ? python_program(words) : std::string();
  if (origin.program.empty()) origin.program = words.front();
  origin.command.clear();
  for (const std::string& word : words) {
    if (!origin.command.empty()) origin.command += ' ';
    origin.command += shell_word(word);
  }
  origin.command = shortened(origin.command, kMostBytesOfCommand);
}

}  // namespace spillway::profile
