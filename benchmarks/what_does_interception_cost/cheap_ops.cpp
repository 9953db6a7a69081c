// How long does one cheap operator take? Prints nanoseconds per operator for three kinds of them.
// Knows nothing of Spillway; run it with and without.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kOpsPerStep = 2000;

/// One kind of operator: nanoseconds each in every step.
struct Kind {
  const char* name;
  void (*op)(torch::Tensor& value, const torch::Tensor& other);
  std::vector<double> nanoseconds;
};

void run_ops(Kind& kind, torch::Tensor& value, const torch::Tensor& other) {
  const torch::NoGradGuard no_grad;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kOpsPerStep; ++i) kind.op(value, other);
  const std::chrono::duration<double, std::nano> passed = Clock::now() - start;
  kind.nanoseconds.push_back(passed.count() / kOpsPerStep);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 100;
  if (steps < 1) {
    std::fprintf(stderr, "usage: cheap_ops [steps, 1 or more]\n");
    return 2;
  }
  at::set_num_threads(1);
  Kind kinds[] = {
      {"in place", [](torch::Tensor& value, const torch::Tensor& other) { value.add_(other); }, {}},
      {"new tensor",
       [](torch::Tensor& value, const torch::Tensor& other) { value = value + other; },
       {}},
      {"view",
       [](torch::Tensor& value, const torch::Tensor&) {
         value = value.view({4, 4});
       },
       {}},
  };
  torch::Tensor parameter = torch::ones({4, 4}, torch::requires_grad());
  torch::Tensor value = torch::zeros({4, 4});
  const torch::Tensor other = torch::full({4, 4}, 1e-6);
  // Steps of training around the operators, so that their order is learned as in a real trainer.
  for (int step = 0; step < steps; ++step) {
    for (Kind& kind : kinds) run_ops(kind, value, other);
    (parameter * value).sum().backward();
    const torch::NoGradGuard no_grad;
    parameter.sub_(parameter.grad(), 1e-3);
    parameter.mutable_grad().reset();
  }
  for (const Kind& kind : kinds) std::printf("%s: %.1f\n", kind.name, median(kind.nanoseconds));
  return 0;
}
