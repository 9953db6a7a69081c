#include "trainer/optimizer.h"

#include "trainer/bad_input.h"

namespace trainer {

void add_optimizer_options(CLI::App& app, OptimizerOptions& options) {
  const auto add = [&app](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->capture_default_str()->group(kTrainingGroup);
  };
  add("--optimizer", options.name, "sgd keeps one extra value per parameter, adam and adamw two")
      ->check(CLI::IsMember({"sgd", "adam", "adamw"}));
  add("--lr", options.learning_rate, "Learning rate")->check(above_zero);
  add("--weight-decay", options.weight_decay, "Weight decay")->check(at_least_zero);
  add("--momentum", options.momentum, "Momentum of sgd; 0 keeps no extra value")
      ->check(CLI::Range(0.0, 1.0));
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerOptions& options,
                                                        std::vector<torch::Tensor> parameters) {
  using namespace torch::optim;
  const double rate = options.learning_rate;
  if (options.name == "sgd")
    return std::make_unique<SGD>(
        std::move(parameters),
        SGDOptions(rate).momentum(options.momentum).weight_decay(options.weight_decay));
  if (options.name == "adam")
    return std::make_unique<Adam>(std::move(parameters),
                                  AdamOptions(rate).weight_decay(options.weight_decay));
  if (options.name == "adamw")
    return std::make_unique<AdamW>(std::move(parameters),
                                   AdamWOptions(rate).weight_decay(options.weight_decay));
  throw BadInput("unknown optimizer '" + options.name + "': choose sgd, adam or adamw");
}

}  // namespace trainer
