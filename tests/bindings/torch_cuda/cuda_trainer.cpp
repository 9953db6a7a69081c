// A trainer on a GPU that knows nothing of Spillway: the bits of its losses, and of what it has
// learned.
//   spillway_cuda_trainer conv_net|unet|gpt|gpt_and_pointer|gpt_on_stream|gpt_on_data_N|streams
//   STEPS [STEP]
// Before STEP the GPU is lost, as by an error of its memory. Where there is no GPU it trains on the
// CPU.
//   spillway_cuda_trainer held TENSORS
// Makes and frees tensors behind a function of the host that ends last.
//   spillway_cuda_trainer shared
// Hands a tensor to other processes.
//   spillway_cuda_trainer writing|catching
// Has something to write when it ends, also where it gets no tensor on a GPU.
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Type.h>
#include <cuda_runtime_api.h>
#include <torch/torch.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "emulated_operators/models.h"
#include "support/emulated_cuda/runtime/emulation.h"

namespace spillway::emulated {
namespace {

at::Tensor labels(std::int64_t kinds, at::IntArrayRef sizes, at::Generator& generator) {
  return at::randint(kinds, sizes, generator, at::TensorOptions(at::kLong));
}

struct Training {
  std::shared_ptr<Network> network;
  std::function<Batch(at::Generator&)> next_batch;
};

/// Layers by turns on two streams, each of which waits for what it needs and no more.
class LayersOnStreams final : public Network {
 public:
  at::Tensor forward(const at::Tensor& input) override {
    using c10::cuda::CUDAStream;
    const CUDAStream own = c10::cuda::getCurrentCUDAStream();
    const std::array<CUDAStream, 2> streams{c10::cuda::getStreamFromPool(),
                                            c10::cuda::getStreamFromPool()};
    CUDAStream before = own;
    at::Tensor x = input;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      x = follow(x, before, streams[i % 2]);
      const c10::cuda::CUDAStreamGuard guard(streams[i % 2]);
      x = torch::dropout(at::gelu(layers_[i]->forward(x)), 0.2, true);
      before = streams[i % 2];
    }
    return follow(x, before, own);
  }

 private:
  static at::Tensor follow(const at::Tensor& x, c10::cuda::CUDAStream from,
                           c10::cuda::CUDAStream to) {
    at::cuda::CUDAEvent made;
    made.record(from);
    made.block(to);
    x.record_stream(to);
    return x;
  }

  std::vector<torch::nn::Linear> layers_ = [this] {
    std::vector<torch::nn::Linear> layers;
    for (int i = 0; i < 8; ++i)
      layers.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(i == 0 ? 64 : 128, 128)));
    return layers;
  }();
};

/// Batches large enough for activations to outweigh everything else.
Training training_of(const std::string& model) {
  if (model == "conv_net")
    return {make_conv_net(), [](at::Generator& data) {
              return Batch{at::randn({16, 3, 64, 64}, data), labels(10, {16}, data)};
            }};
  if (model == "unet")
    return {make_unet(), [](at::Generator& data) {
              return Batch{at::randn({1, 1, 32, 32, 32}, data), labels(3, {1, 32, 32, 32}, data)};
            }};
  if (model == "streams")
    return {std::make_shared<LayersOnStreams>(), [](at::Generator& data) {
              return Batch{at::randn({512, 64}, data), labels(10, {512}, data)};
            }};
  if (!model.starts_with("gpt")) {
    std::fprintf(stderr, "unknown model %s\n", model.c_str());
    std::exit(1);
  }
  return {make_gpt(AttentionForm::kExplicit), [](at::Generator& data) {
            return Batch{labels(64, {64, 32}, data), labels(64, {64 * 32}, data)};
          }};
}

/// Mixes all bytes.
std::uint64_t digest_of(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.detach().cpu().flatten().view(at::kByte);
  std::uint64_t digest = 0xCBF29CE484222325ull;
  for (std::int64_t i = 0; i < bytes.numel(); ++i)
    digest = (digest ^ bytes.const_data_ptr<std::uint8_t>()[i]) * 0x100000001B3ull;
  return digest;
}

/// Reads a tensor by a pointer that was taken long ago, as kernels do that are no operators.
class KeptPointer {
 public:
  explicit KeptPointer(at::Device device)
      : tensor_(at::arange(kNumbers, at::TensorOptions(device).dtype(at::kFloat))),
        pointer_(tensor_.data_ptr<float>()) {}

  std::uint64_t digest() const {
    at::Tensor copy = at::empty({kNumbers}, at::kFloat);
    C10_CUDA_CHECK(cudaMemcpy(copy.mutable_data_ptr<float>(), pointer_, copy.nbytes(),
                              cudaMemcpyDeviceToHost));
    return digest_of(copy);
  }

 private:
  static constexpr std::int64_t kNumbers = 1 << 17;
  at::Tensor tensor_;
  const float* pointer_;
};

void share() {
  const at::Tensor tensor = at::ones({1 << 17}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  const auto shared =
      c10::cuda::CUDACachingAllocator::get()->shareIpcHandle(tensor.storage().mutable_data());
  std::printf("shared %zu\n", shared.handle.size());
}

int write(bool catches) {
  std::setvbuf(stdout, nullptr, _IOFBF, BUFSIZ);
  std::printf("begun\n");
  std::atexit([] { std::printf("at exit\n"); });
  const auto use_gpu = [] { at::ones({1 << 17}, at::TensorOptions(at::kCUDA)); };
  if (!catches) {
    use_gpu();
    return 0;
  }
  try {
    use_gpu();
  } catch (const std::exception&) {
    std::printf("caught\n");
    return 3;
  }
  return 0;
}

/// Nothing that the stream is given ends before all of it is given.
void make_behind_what_does_not_end(int tensors) {
  at::Tensor sum = at::zeros({1 << 17}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  sum.add_(at::cos(sum));  // The emulation waits for operators that it has not run before.
  std::promise<void> end;
  const auto wait = [](void* awaited) {
    static_cast<std::promise<void>*>(awaited)->get_future().wait();
  };
  C10_CUDA_CHECK(cudaLaunchHostFunc(c10::cuda::getCurrentCUDAStream(), wait, &end));
  for (int i = 0; i < tensors; ++i) sum.add_(at::cos(sum));
  end.set_value();
  std::printf("sum %016llx\n", static_cast<unsigned long long>(digest_of(sum)));
}

/// `lost_at`: the step that finds no GPU.
void train(const std::string& model, int steps, int lost_at) {
  const at::Device device =
      torch::cuda::is_available() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  const auto on_device = [&](const at::Tensor& tensor) {
    return device.is_cuda() ? tensor.pin_memory().to(device, /*non_blocking=*/true) : tensor;
  };
  std::optional<KeptPointer> kept;
  if (model == "gpt_and_pointer") kept.emplace(device);
  std::optional<c10::cuda::CUDAStreamGuard> stream;
  if (model == "gpt_on_stream") stream.emplace(c10::cuda::getStreamFromPool());
  torch::manual_seed(7);
  const std::string other_data = "gpt_on_data_";
  at::Generator data = at::detail::createCPUGenerator(
      99 + (model.starts_with(other_data) ? std::stoull(model.substr(other_data.size())) : 0));
  const Training training = training_of(model);
  training.network->to(device);
  torch::optim::Adam optimizer(training.network->parameters(), torch::optim::AdamOptions(1e-3));
  for (int step = 0; step < steps; ++step) {
    if (step == lost_at) emu_cuda_lose(0, cudaErrorECCUncorrectable);
    const Batch batch = training.next_batch(data);
    optimizer.zero_grad();
    const at::Tensor input = on_device(batch.input);
    const at::Tensor target = on_device(batch.target);
    const at::Tensor loss = at::cross_entropy_loss(training.network->forward(input), target);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(training.network->parameters(), 1.0);
    optimizer.step();
    const at::Tensor shown = loss.detach().to(at::kCPU, /*non_blocking=*/true);
    if (device.is_cuda()) torch::cuda::synchronize();
    std::printf("loss %08x\n", std::bit_cast<std::uint32_t>(shown.item<float>()));
  }
  for (const auto& item : training.network->named_parameters())
    std::printf("%s %016llx\n", item.key().c_str(),
                static_cast<unsigned long long>(digest_of(item.value())));
  if (kept) std::printf("kept %016llx\n", static_cast<unsigned long long>(kept->digest()));
  for (const auto& item : training.network->named_buffers())
    std::printf("%s %016llx\n", item.key().c_str(),
                static_cast<unsigned long long>(digest_of(item.value())));
}

}  // namespace
}  // namespace spillway::emulated

int main(int count, char** words) {
  if (count == 2 && std::string(words[1]) == "shared") {
    spillway::emulated::share();
    return 0;
  }
  if (count == 2) return spillway::emulated::write(std::string(words[1]) == "catching");
  if (count != 3 && count != 4) return 1;
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // For who waits for a step.
  auto* const allocator = c10::cuda::CUDACachingAllocator::get();
  std::fprintf(stderr, "allocator %s\n", c10::demangle(typeid(*allocator).name()).c_str());
  const int steps = std::atoi(words[2]);
  if (std::string(words[1]) == "held")
    spillway::emulated::make_behind_what_does_not_end(steps);
  else
    spillway::emulated::train(words[1], steps, count == 4 ? std::atoi(words[3]) : -1);
  if (torch::cuda::is_available())
    std::fprintf(stderr, "peak %lld\n",
                 static_cast<long long>(allocator->getDeviceStats(0).allocated_bytes[0].peak));
  return 0;
}
