#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trainer {

/// Groups of flags. A checkpoint remembers every flag of `kModelGroup` and `kTrainingGroup`,
/// because a run that continues with other values would not be the same run.
inline constexpr const char* kModelGroup = "Model and data";
inline constexpr const char* kTrainingGroup = "Training";
inline constexpr const char* kRunGroup = "Run";

/// Checks for flags. CLI11's own name the largest number of their type, with all its digits. Text
/// that is no number is left to the flag's own type.
std::string at_least_one(const std::string& text);
std::string at_least_zero(const std::string& text);
std::string above_zero(const std::string& text);

/// Flags that every example trainer has.
struct RunOptions {
  std::int64_t steps = 10;
  std::int64_t micro_batches = 1;  ///< Per step; their gradients add up.
  std::uint64_t seed = 1;
  int threads = 0;  ///< 0 leaves the choice to LibTorch.
  std::string device = "cpu";
  bool autocast = false;  ///< The forward in bfloat16, where that is enough.
  std::filesystem::path losses;
  std::filesystem::path checkpoint;
  std::int64_t checkpoint_every = 0;  ///< 0 writes the checkpoint after the last step only.
  std::filesystem::path resume;
  std::filesystem::path save_model;
};

/// Adds `--steps`, `--micro-batches`, `--seed`, `--threads`, `--device`, `--autocast`, `--losses`,
/// `--checkpoint`, `--checkpoint-every`, `--resume` and `--save-model`.
void add_run_options(CLI::App& app, RunOptions& options);

/// Finds `--preset NAME` on a command line that is not parsed yet. A preset changes the defaults of
/// the other flags, so it must be known before they are declared; `fallback` is returned without
/// the flag.
std::string preset_on_command_line(int argc, char** argv, const std::string& fallback);

/// Declares `--preset` itself, so that help shows it and unknown names are refused.
void add_preset_option(CLI::App& app, std::string& preset, const std::vector<std::string>& names,
                       const std::string& description);

/// Name and value of every flag in the groups that a checkpoint remembers. Numbers are written in
/// one canonical form, so that `1e-3` and `0.001` are the same.
using Configuration = std::map<std::string, std::string>;
Configuration configuration_of(const CLI::App& app);

}  // namespace trainer
