// Trains a small network that is linked with Spillway: `linked_split [marks|shards]`. Prints losses
// and parameters with all their bits. With marks, forward of all micro-batches comes before
// backward. With shards there are two networks with data of their own: one process trains both on
// the mean of their gradients, as ranks do.
#include <ATen/CPUGeneratorImpl.h>
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

constexpr std::uint32_t kShards = 2;

struct ScaledImpl : torch::nn::Module {
  ScaledImpl()
      : layer(register_module("layer", torch::nn::Linear(kWidth, kWidth))),
        scale(register_parameter("scale", torch::randn({kWidth}))) {}
  torch::Tensor forward(const torch::Tensor& input) { return layer(input).tanh() * scale; }

  torch::nn::Linear layer;
  torch::Tensor scale;
};
TORCH_MODULE(Scaled);

/// What one of the shards trains. Each draws numbers of its own, for its parameters, too, which
/// begin as those of the first.
struct Shard {
  explicit Shard(std::uint32_t its_number) : number(its_number) {
    torch::manual_seed(1 + number);
    network->push_back(Scaled());
    network->push_back(Scaled());
    random = at::detail::getDefaultCPUGenerator().get_state();
  }

  void backward() {
    at::Generator(at::detail::getDefaultCPUGenerator()).set_state(random);
    const torch::Tensor input = torch::randn({8, kWidth}).requires_grad_();
    const torch::Tensor loss = torch::mse_loss(network->forward(input), torch::randn({8, kWidth}));
    loss.backward();
    random = at::detail::getDefaultCPUGenerator().get_state();
    if (number == 0)
      std::printf("%016" PRIx64 " %016" PRIx64 "\n", bits(loss), bits(input.grad().square().sum()));
  }

  std::uint32_t number;
  torch::nn::Sequential network;
  torch::Tensor random;
};

void give_all_the_mean(const std::vector<Shard>& shards) {
  const std::vector<torch::Tensor> first = shards[0].network->parameters();
  const std::vector<torch::Tensor> second = shards[1].network->parameters();
  for (std::size_t i = 0; i < first.size(); ++i) {
    first[i].mutable_grad().add_(second[i].grad()).mul_(0.5);
    second[i].mutable_grad().copy_(first[i].grad());
  }
}

void train_shards(bool is_split) {
  std::vector<Shard> shards;
  std::vector<torch::optim::SGD> optimizers;
  for (std::uint32_t number = 0; number < kShards; ++number) {
    if (is_split && number != spillway::shard()) continue;
    shards.emplace_back(number);
    optimizers.emplace_back(shards.back().network->parameters(), 0.1);
  }
  const torch::NoGradGuard outside_of_forward;
  for (std::size_t i = 1; i < shards.size(); ++i)
    for (std::size_t k = 0; k < shards[0].network->parameters().size(); ++k)
      shards[i].network->parameters()[k].copy_(shards[0].network->parameters()[k]);
  for (int step = 0; step < kSteps; ++step) {
    for (auto& optimizer : optimizers) optimizer.zero_grad();
    {
      const torch::AutoGradMode forward(true);
      for (Shard& shard : shards) shard.backward();
    }
    if (!is_split) give_all_the_mean(shards);
    for (auto& optimizer : optimizers) optimizer.step();
  }
  for (const torch::Tensor& parameter : shards[0].network->parameters())
    std::printf("%016" PRIx64 "\n", bits(parameter.to(torch::kDouble).sum()));
}

}  // namespace

int main(int count, char** words) {
  try {
    const std::string word = count > 1 ? words[1] : "";
    const bool has_shards = word == "shards";
    spillway::start({.budget = "1GiB", .split = true, .shards = has_shards ? kShards : 1});
    std::ofstream("rank.txt") << spillway::rank() << " of " << spillway::ranks() << ", "
                              << spillway::shard() << " of " << spillway::shards() << "\n";
    if (has_shards) {
      train_shards(spillway::ranks() > 1);
    } else {
      train(word == "marks");
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
