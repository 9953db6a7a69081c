#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "trainer/autocast.h"
#include "trainer/options.h"

namespace trainer {

struct StepResult {
  float loss = 0.0F;
  std::int64_t items = 0;  ///< How much data the step saw: voxels, pixels or tokens.
};

/// The micro-batches of one step, each with a forward and a backward of its own. With `--autocast`
/// the forward is what lies between `next` and `backward`.
///   MicroBatches parts(options, step);
///   while (parts.is_left()) parts.backward(loss_of(parts.next()), items);
class MicroBatches {
 public:
  MicroBatches(const RunOptions& options, std::int64_t step);

  bool is_left() const { return begun_ < count_; }
  /// Number of the next batch, counted from 1 through all steps.
  std::int64_t next();
  /// Adds the gradients of its part of the mean loss. `items`: how much data it saw.
  void backward(const torch::Tensor& loss, std::int64_t items);
  /// Reads the mean loss: when the step is done, since that waits for it.
  StepResult result() const { return {loss_.item<float>(), items_}; }

 private:
  const std::int64_t count_;
  const std::int64_t first_;
  const std::optional<torch::DeviceType> casts_on_;
  std::int64_t begun_ = 0;
  std::int64_t items_ = 0;
  torch::Tensor loss_;
  std::optional<Autocast> autocast_;
};

/// One training run: what to train, and how one step goes.
struct TrainingRun {
  torch::nn::Module& model;
  torch::optim::Optimizer& optimizer;
  std::string item_name;                              ///< Unit of the speed in the log, "voxels".
  std::function<StepResult(std::int64_t step)> step;  ///< Called with 1, 2, 3, ...
  std::function<void(std::int64_t step)> after_step;  ///< Evaluation, not timed; may be empty.
  torch::Device device = torch::kCPU;
};

/// Seeds LibTorch and sets its threads, and returns the device to train on. Call before the model
/// is made: its first weights are random. Throws `BadInput` where the device is not there.
torch::Device prepare(const RunOptions& options);

/// Runs all steps: resumes, logs, writes losses, checkpoints and the final model. Stops with an
/// error when a loss is not finite.
void train(const TrainingRun& run, const RunOptions& options, const Configuration& configuration);

}  // namespace trainer
