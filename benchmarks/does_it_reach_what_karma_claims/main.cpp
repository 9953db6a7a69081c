// Trains one of the six networks of KARMA's figures on made-up data. Knows nothing of Spillway.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "networks.h"
#include "trainer/options.h"
#include "trainer/program.h"
#include "trainer/training_loop.h"

namespace {

using namespace karma_networks;

struct Options {
  std::string model = "resnet-50";
  std::int64_t batch = 2;
  bool count = false;
  bool weights = false;
  trainer::RunOptions run;
};

void declare(CLI::App& app, Options& options) {
  app.add_option("--model", options.model, "The network")
      ->check(CLI::IsMember(network_names()))
      ->capture_default_str()
      ->group(trainer::kModelGroup);
  app.add_option("--batch", options.batch, "Images per step")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str()
      ->group(trainer::kModelGroup);
  app.add_flag("--count", options.count, "Print the number of parameters and end")
      ->group(trainer::kRunGroup);
  app.add_flag("--weights", options.weights,
               "Print the sizes of all weights of layers, in the order of forward, and end")
      ->group(trainer::kRunGroup);
  trainer::add_run_options(app, options.run);
}

std::vector<std::int64_t> batch_of(std::int64_t batch, std::vector<std::int64_t> sizes) {
  sizes.insert(sizes.begin(), batch);
  return sizes;
}

void print_count(const torch::nn::Module& network) {
  std::int64_t parameters = 0;
  for (const torch::Tensor& parameter : network.parameters()) parameters += parameter.numel();
  std::printf("%lld parameters\n", static_cast<long long>(parameters));
}

/// A line per convolution or linear layer: "conv 64 3 7 7". Layers are registered in the order in
/// which forward runs them.
void print_weights(const torch::nn::Module& network) {
  for (const auto& layer : network.modules(/*include_self=*/false)) {
    const char* kind = layer->as<torch::nn::Conv2d>() != nullptr            ? "conv"
                       : layer->as<torch::nn::ConvTranspose2d>() != nullptr ? "transposed"
                       : layer->as<torch::nn::Linear>() != nullptr          ? "linear"
                                                                            : nullptr;
    if (kind == nullptr) continue;
    std::printf("%s", kind);
    for (const std::int64_t size : layer->named_parameters(/*recurse=*/false)["weight"].sizes())
      std::printf(" %lld", static_cast<long long>(size));
    std::printf("\n");
  }
}

/// The operators of `torch::optim::SGD` with momentum and weight decay. That one writes to
/// parameters through `data()`, so that Spillway does not see where a step ends and records it from
/// anywhere.
class Sgd {
 public:
  explicit Sgd(std::vector<torch::Tensor> parameters) : parameters_(std::move(parameters)) {
    for (const torch::Tensor& parameter : parameters_)
      moments_.push_back(torch::zeros_like(parameter, torch::TensorOptions().requires_grad(false)));
  }

  void step() {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const torch::Tensor gradient = parameters_[i].grad().add(parameters_[i], kWeightDecay);
      moments_[i].mul_(kMomentum).add_(gradient);
      parameters_[i].add_(moments_[i], -kLearningRate);
    }
    for (torch::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }

 private:
  static constexpr double kLearningRate = 1e-3;
  static constexpr double kMomentum = 0.9;
  static constexpr double kWeightDecay = 1e-4;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> moments_;
};

void train_network(const Options& options, const trainer::Configuration& configuration) {
  trainer::prepare(options.run);
  Network network = make_network(options.model);
  if (options.count) return print_count(*network.layers);
  if (options.weights) return print_weights(*network.layers);
  Sgd optimizer(network.layers->parameters());
  // The loop of the example trainers asks for one; this one has nothing to do.
  torch::optim::SGD none(std::vector<torch::Tensor>{}, torch::optim::SGDOptions(1));
  const auto step = [&](std::int64_t) -> trainer::StepResult {
    torch::Tensor images = torch::randn(batch_of(options.batch, network.image));
    const torch::Tensor targets =
        torch::randint(network.classes, batch_of(options.batch, network.target), torch::kLong);
    torch::Tensor scores = network.layers->forward(images);
    images.reset();  // As where a loader hands a batch over: who needs it later keeps it.
    const torch::Tensor loss = torch::nn::functional::cross_entropy(scores, targets);
    scores.reset();
    loss.backward();
    optimizer.step();
    return {loss.item<float>(), options.batch};
  };
  trainer::train({*network.layers, none, "images", step, {}}, options.run, configuration);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains one of the six networks of KARMA's figures on random images.",
               "karma_networks");
  declare(app, options);
  return trainer::run_program(app, argc, argv,
                              [&] { train_network(options, trainer::configuration_of(app)); });
}
