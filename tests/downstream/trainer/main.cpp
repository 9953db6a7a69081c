// A trainer of somebody else: `trainer` trains as always, `trainer BUDGET DIRECTORY` under a
// budget. Prints the loss of each step with all its bits, then what Spillway counted.
#include <spillway/spillway.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>

namespace {

constexpr int64_t kWidth = 1024;
constexpr int kLayers = 12;
constexpr int kSteps = 4;

// 48 MiB of weights; gradients and the states of Adam make it 192 MiB.
torch::nn::Sequential deep_network() {
  torch::nn::Sequential network;
  for (int layer = 0; layer < kLayers; ++layer) {
    network->push_back(torch::nn::Linear(kWidth, kWidth));
    network->push_back(torch::nn::ReLU());
  }
  return network;
}

void train() {
  torch::manual_seed(1);
  torch::nn::Sequential network = deep_network();
  torch::optim::Adam optimizer(network->parameters(), torch::optim::AdamOptions(1e-3));
  for (int step = 0; step < kSteps; ++step) {
    const torch::Tensor input = torch::randn({256, kWidth});
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(network->forward(input), input);
    loss.backward();
    optimizer.step();
    std::printf("loss %a\n", loss.item<double>());
  }
}

void print_statistics() {
  const spillway::Statistics counted = spillway::statistics();
  std::printf("budget_bytes %ju\n", static_cast<std::uintmax_t>(counted.budget_bytes));
  std::printf("peak_bytes %ju\n", static_cast<std::uintmax_t>(counted.peak_bytes));
  std::printf("needed_bytes %ju\n", static_cast<std::uintmax_t>(counted.needed_bytes));
  std::printf("spilled_bytes %ju\n", static_cast<std::uintmax_t>(counted.spilled_bytes));
  std::printf("fetched_bytes %ju\n", static_cast<std::uintmax_t>(counted.fetched_bytes));
  std::printf("steps %ju\n", static_cast<std::uintmax_t>(counted.steps));
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3) spillway::start({.budget = arguments[1], .nvme = {arguments[2]}});
  train();
  if (count == 3) {
    print_statistics();
    return 0;
  }
  try {
    spillway::statistics();
    std::printf("counted without start\n");  // The command started it.
  } catch (const std::runtime_error& error) {
    std::printf("refused: %s\n", error.what());
  }
  return 0;
}
