// Trains a small network that is linked with Spillway: `linked_split [marks]`. Prints losses and
// parameters with all their bits. With marks, forward of all micro-batches comes before backward.
#include <spillway/spillway.h>
#include <torch/torch.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

namespace {

constexpr int64_t kWidth = 64;
constexpr int kSteps = 6;
constexpr int kMicroBatches = 4;

std::uint64_t bits(const torch::Tensor& number) {
  const double value = number.item<double>();
  std::uint64_t seen = 0;
  std::memcpy(&seen, &value, sizeof seen);
  return seen;
}

void train(bool marks) {
  torch::manual_seed(1);
  torch::nn::Sequential network;
  for (int layer = 0; layer < 6; ++layer) {
    network->push_back(torch::nn::Linear(kWidth, kWidth));
    network->push_back(torch::nn::Tanh());
  }
  torch::optim::Adam optimizer(network->parameters(), torch::optim::AdamOptions(1e-3));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    std::vector<torch::Tensor> losses;
    for (int i = 0; i < kMicroBatches; ++i) {
      if (marks) spillway::micro_batch();
      const torch::Tensor input = torch::randn({8, kWidth});
      losses.push_back(torch::mse_loss(network->forward(input), input) / kMicroBatches);
      if (!marks) losses.back().backward();
    }
    if (marks)
      for (const torch::Tensor& loss : losses) loss.backward();
    optimizer.step();
    std::printf("%016" PRIx64 "\n", bits(torch::stack(losses).sum()));
  }
  const torch::NoGradGuard no_more_forward;
  for (const torch::Tensor& parameter : network->parameters())
    std::printf("%016" PRIx64 "\n", bits(parameter.to(torch::kDouble).sum()));
}

}  // namespace

int main(int count, char** words) {
  try {
    spillway::start({.budget = "1GiB", .split = true});
    std::ofstream("rank.txt") << spillway::rank() << " of " << spillway::ranks() << "\n";
    train(count > 1 && std::string(words[1]) == "marks");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
