#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>

namespace trainer {

/// A text file with one line `step loss` per training step. The loss is the shortest decimal number
/// that reads back as the same float, and every line is on its way to the disk before the next
/// step.
class LossFile {
 public:
  /// Does nothing when `path` is empty. Lines of steps before `first_step` are kept when the file
  /// exists, so that a resumed run completes the file of the run it continues; later lines go.
  LossFile(const std::filesystem::path& path, std::int64_t first_step);

  void append(std::int64_t step, float loss);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace trainer
