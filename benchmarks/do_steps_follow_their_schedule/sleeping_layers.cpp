// A trainer whose layers take a known time: matrix products sleep, so that ranks do not compete for
// cores. A layer is one product in forward and two in backward.
//   spillway_sleeping_layers LAYERS MICRO_BATCHES STEPS MILLISECONDS [item | slow RANK STEP]
// With `slow`, the products of one rank of a job take twice as long from a step on.
// Prints losses on stdout, and on stderr the seconds of each step.

#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

std::atomic<std::chrono::milliseconds> unit{std::chrono::milliseconds(0)};

at::Tensor sleeping_mm(const at::Tensor& left, const at::Tensor& right) {
  // Ranks run a kernel of each kind once on little memory, to see what it makes: that sleeps, too.
  std::this_thread::sleep_for(unit.load());
  return at::cpu::mm(left, right);
}

bool is_rank(const char* number) {
  for (const char* name : {"SPILLWAY_LAUNCHER_PMI_RANK", "SPILLWAY_LAUNCHER_OMPI_COMM_WORLD_RANK",
                           "SPILLWAY_LAUNCHER_SLURM_PROCID"})
    if (const char* const value = std::getenv(name)) return std::string(value) == number;
  return false;
}

TORCH_LIBRARY_IMPL(aten, CPU, library) { library.impl("mm", &sleeping_mm); }

}  // namespace

int main(int count, char** words) {
  if (count < 5) return 2;
  const int layers = std::atoi(words[1]);
  const int micro_batches = std::atoi(words[2]);
  const int steps = std::atoi(words[3]);
  const bool becomes_slow = count > 7 && std::string(words[5]) == "slow" && is_rank(words[6]);
  const bool reads_losses = count > 5 && std::string(words[5]) == "item";
  torch::manual_seed(1);
  torch::set_num_threads(1);
  constexpr int kWidth = 64;
  std::vector<at::Tensor> weights;
  // The first product needs a gradient of its input, too.
  at::Tensor scale = torch::ones({1}).requires_grad_();
  for (int i = 0; i < layers; ++i) {
    at::Tensor weight = torch::empty({kWidth, kWidth}).requires_grad_();
    const torch::NoGradGuard none;
    torch::nn::init::xavier_normal_(weight);
    weights.push_back(weight);
  }
  std::vector<at::Tensor> parameters = weights;
  parameters.push_back(scale);
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(1e-2));
  unit = std::chrono::milliseconds(std::atoi(words[4]));
  for (int step = 0; step < steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    if (becomes_slow && step == std::atoi(words[7])) unit = 2 * unit.load();
    optimizer.zero_grad();
    at::Tensor sum;
    double read = 0;
    for (int i = 0; i < micro_batches; ++i) {
      at::Tensor hidden = torch::randn({8, kWidth}) * scale;
      for (const at::Tensor& weight : weights) hidden = torch::tanh(hidden.mm(weight));
      const at::Tensor loss = hidden.square().mean() / micro_batches;
      loss.backward();
      if (reads_losses) {
        read += loss.item<double>();
      } else {
        sum = sum.defined() ? sum + loss.detach() : loss.detach();
      }
    }
    optimizer.step();
    // The end of the step: a weight of the first stage is the last one to change.
    const double seen = weights.front().detach().sum().item<double>();
    if (!reads_losses) read = sum.item<double>();
    std::printf("%d %.9g %.9g\n", step, read, seen);
    std::fflush(stdout);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "seconds %.4f\n", passed.count());
  }
  return 0;
}
