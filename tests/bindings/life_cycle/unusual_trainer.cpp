// A trainer that begins or ends in unusual ways; needs some 100 MiB. Linked into a program, and as
// a plugin that a host opens. Usage: plain|own_allocator|abort|crash|twice|at_exit

#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

/// What a program may put in the place of every other allocator.
class OwnAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    void* const memory = std::malloc(size);
    return {memory, memory, &std::free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

void train() {
  std::vector<at::Tensor> weights;
  for (int i = 0; i < 6; ++i)
    weights.push_back((torch::randn({1024, 1024}) * 0.03).requires_grad_());
  for (int step = 0; step < 3; ++step) {
    at::Tensor h = torch::randn({2048, 1024});
    for (const at::Tensor& weight : weights) h = torch::silu(h.matmul(weight));
    const at::Tensor loss = h.pow(2).mean();
    const auto gradients = torch::autograd::grad({loss}, weights);
    const torch::NoGradGuard none;
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i].sub_(gradients[i]);
    std::printf("loss %a\n", loss.item<double>());
  }
  double sum = 0.0;
  for (const at::Tensor& weight : weights) sum += weight.sum().item<double>();
  std::printf("weights %a\n", sum);
  std::fflush(stdout);
}

void train_again() {
  torch::manual_seed(7);
  train();
}

// As constants of a library are: made while it is being loaded.
const at::Tensor early =
    std::getenv("EARLY_TENSOR") != nullptr ? torch::ones({1 << 20}) : at::Tensor();

}  // namespace

extern "C" int run_unusual_trainer(const char* word) {
  at::set_num_threads(1);
  torch::manual_seed(7);
  const std::string way = word;
  if (way == "own_allocator") {
    static OwnAllocator allocator;
    c10::SetAllocator(c10::DeviceType::CPU, &allocator, 255);
  }
  train();
  if (early.defined()) std::printf("early %a\n", early.sum().item<double>());
  std::fflush(stdout);
  if (way == "twice") train_again();
  if (way == "at_exit") std::atexit(&train_again);
  if (way == "abort") std::abort();
  volatile std::uintptr_t nowhere = 16;  // Read anew: a compiler would see through a constant.
  if (way == "crash") *reinterpret_cast<volatile int*>(nowhere) = 1;
  return 0;
}
