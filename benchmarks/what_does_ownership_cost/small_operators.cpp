// Times operators on small tensors, in processor time of the program's thread: of a parameter that
// the first of two ranks keeps, and of one that the second keeps.
//   spillway_small_operators ROUNDS
// Prints "KEPT KIND MICROSECONDS" on stderr for each round, where KEPT is here or elsewhere.

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>

namespace {

constexpr int kWidth = 16;
constexpr int kOperators = 4000;

/// Of this thread alone: on a few cores it waits for the threads that compute.
double processor_microseconds() {
  std::timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

double microseconds_of(const std::function<void()>& one) {
  const double start = processor_microseconds();
  for (int i = 0; i < kOperators; ++i) one();
  return (processor_microseconds() - start) / kOperators;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  torch::manual_seed(1);
  torch::set_num_threads(1);
  at::Tensor first = torch::randn({kWidth, kWidth}).requires_grad_();
  at::Tensor second = torch::randn({kWidth, kWidth}).requires_grad_();
  ((torch::randn({kWidth, kWidth}) * first).tanh() * second).sum().backward();
  const torch::NoGradGuard none;
  for (int round = 0; round < std::atoi(words[1]); ++round) {
    for (const auto& [where, parameter] :
         {std::pair("here", first), std::pair("elsewhere", second)}) {
      at::Tensor tensor = parameter;
      const double in_place = microseconds_of([&] { tensor.mul_(1.0); });
      double seen = tensor.sum().item<double>();  // Nothing is left to do on any rank.
      const double made = microseconds_of([&] { tensor.mul(1.0); });
      seen += tensor.sum().item<double>();
      std::fprintf(stderr, "%s in-place %.4f\n%s new %.4f\n", where, in_place, where, made);
      std::printf("%.9g\n", seen);
    }
  }
  return 0;
}
