// A trainer of somebody else: `trainer FILE` trains as always, `trainer FILE BUDGET DIRECTORY`
// under a budget, twice. Prints the loss of each step with all its bits, then what Spillway
// counted.
#include <spillway/spillway.h>
#include <torch/torch.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

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

/// Writes the bytes of tensors by system calls and compares what the file then holds.
void check_file(const std::vector<torch::Tensor>& tensors, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  for (const torch::Tensor& tensor : tensors)
    out.write(static_cast<const char*>(tensor.data_ptr()),
              static_cast<std::streamsize>(tensor.nbytes()));
  out.close();
  bool equal = out.good();
  std::ifstream in(path, std::ios::binary);
  for (const torch::Tensor& tensor : tensors) {
    std::string bytes(tensor.nbytes(), '\0');
    in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    equal = equal && std::memcmp(bytes.data(), tensor.data_ptr(), bytes.size()) == 0;
  }
  std::printf("file %s\n", equal && in.good() ? "equal" : "DIFFERENT");
}

void train(bool tells_steps, const std::string& file) {
  torch::manual_seed(1);
  torch::nn::Sequential network = deep_network();
  torch::optim::Adam optimizer(network->parameters(), torch::optim::AdamOptions(1e-3));
  for (int step = 0; step < kSteps; ++step) {
    if (tells_steps) spillway::begin_step();
    const torch::Tensor input = torch::randn({256, kWidth});
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(network->forward(input), input);
    loss.backward();
    optimizer.step();
    std::printf("loss %a\n", loss.item<double>());
  }
  check_file(network->parameters(), file);
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

/// Prints whether operators of a thread that starts under Spillway are seen.
void run_on_a_thread() {
  const torch::Tensor values = torch::ones({kWidth, kWidth});
  const auto before = spillway::statistics().ops;
  std::thread([&] { values.mul(2); }).join();
  std::printf("thread %s\n", spillway::statistics().ops > before ? "seen" : "UNSEEN");
}

/// Prints what a forked child gets from the API: nothing, but no hang either.
void ask_in_forked_child() {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    spillway::begin_step();
    try {
      spillway::statistics();
    } catch (const std::runtime_error& error) {
      std::printf("child refused: %s\n", error.what());
    }
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  if (count == 4) spillway::start({.budget = arguments[2], .nvme = {arguments[3]}});
  const std::string file = arguments[1];
  train(false, file);
  if (count == 4) {
    print_statistics();
    train(true, file);
    std::printf("recognised and told steps %ju\n",
                static_cast<std::uintmax_t>(spillway::statistics().steps));
    run_on_a_thread();
    ask_in_forked_child();
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
