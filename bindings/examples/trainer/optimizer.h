#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "trainer/options.h"

namespace trainer {

struct OptimizerOptions {
  std::string name = "adam";
  double learning_rate = 1e-3;
  double weight_decay = 0.0;
  double momentum = 0.9;  ///< Of sgd only.
};

/// Adds `--optimizer`, `--lr`, `--weight-decay` and `--momentum`.
void add_optimizer_options(CLI::App& app, OptimizerOptions& options);

/// Makes the optimizer named by the options: `sgd`, `adam` or `adamw`.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        std::vector<torch::Tensor> parameters);

}  // namespace trainer
