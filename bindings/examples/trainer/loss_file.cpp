#include "trainer/loss_file.h"

#include <array>
#include <charconv>
#include <sstream>
#include <string>

#include "trainer/bad_input.h"

namespace trainer {
namespace {

std::string lines_before(const std::filesystem::path& path, std::int64_t first_step) {
  std::ifstream file(path);
  std::string kept;
  for (std::string line; std::getline(file, line);) {
    std::int64_t step = 0;
    float loss = 0.0F;
    if (!(std::istringstream(line) >> step >> loss) || step >= first_step) break;
    kept += line + '\n';
  }
  return kept;
}

}  // namespace

LossFile::LossFile(const std::filesystem::path& path, std::int64_t first_step) : path_(path) {
  if (path_.empty()) return;
  const std::string kept = first_step > 1 ? lines_before(path_, first_step) : "";
  file_.open(path_, std::ios::trunc);
  if (!(file_ << kept << std::flush))
    throw BadInput("cannot write the losses to '" + path_.string() + "'");
}

void LossFile::append(std::int64_t step, float loss) {
  if (path_.empty()) return;
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), loss).ptr;
  file_ << step << ' ' << std::string_view(digits.data(), end - digits.data()) << '\n'
        << std::flush;
  if (!file_)
    throw std::runtime_error("cannot write step " + std::to_string(step) + " to '" +
                             path_.string() + "': is the disk full?");
}

}  // namespace trainer
