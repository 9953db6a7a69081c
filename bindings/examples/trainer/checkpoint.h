#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>

#include "trainer/options.h"

namespace trainer {

/// Everything that the next training step depends on.
struct TrainingState {
  torch::nn::Module& model;
  torch::optim::Optimizer& optimizer;
  torch::Device device;
  std::int64_t step = 0;  ///< Last finished step.
};

/// Writes the state and that of LibTorch's random numbers, those of the device included. A crash
/// while writing leaves the previous checkpoint untouched: the file gets its name only when it is
/// complete.
void save_checkpoint(const std::filesystem::path& path, const TrainingState& state,
                     const Configuration& configuration);

/// Reads back what `save_checkpoint` wrote, into a model and an optimizer made from the same flags.
/// Throws `BadInput` when the file is damaged or belongs to another configuration.
void load_checkpoint(const std::filesystem::path& path, TrainingState& state,
                     const Configuration& configuration);

/// Writes parameters and buffers alone.
void save_model(const std::filesystem::path& path, const torch::nn::Module& model);

}  // namespace trainer
