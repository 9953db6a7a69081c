#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/options.h"

namespace trainer {

struct StepResult {
  float loss = 0.0F;
  std::int64_t items = 0;  ///< How much data the step saw: voxels, pixels or tokens.
};

/// One training run: what to train, and how one step goes.
struct TrainingRun {
  torch::nn::Module& model;
  torch::optim::Optimizer& optimizer;
  std::string item_name;                              ///< Unit of the speed in the log, "voxels".
  std::function<StepResult(std::int64_t step)> step;  ///< Called with 1, 2, 3, ...
  std::function<void(std::int64_t step)> after_step;  ///< Evaluation, not timed; may be empty.
};

/// Seeds LibTorch and sets its threads. Call before the model is made: its first weights are
/// random.
void prepare(const RunOptions& options);

/// Runs all steps: resumes, logs, writes losses, checkpoints and the final model. Stops with an
/// error when a loss is not finite.
void train(const TrainingRun& run, const RunOptions& options, const Configuration& configuration);

}  // namespace trainer
