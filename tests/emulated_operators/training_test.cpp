// Whole trainers give on the emulated device the losses, parameters and buffers that they give on
// the CPU.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "compared.h"
#include "half_precision.h"
#include "models.h"
#include "optimizers.h"

namespace spillway::emulated {
namespace {

struct Trainer {
  std::function<std::shared_ptr<Network>()> make_network;
  Batch (*next_batch)(at::Generator&);
  MakeOptimizer make_optimizer;
  bool in_half_precision = false;
};

/// To the device by way of pinned memory, without waiting.
at::Tensor sent(const at::Tensor& tensor, at::Device device) {
  return device.is_cuda() ? tensor.pin_memory().to(device, /*non_blocking=*/true) : tensor;
}

at::Tensor loss_of(Network& network, const Batch& batch, const Trainer& trainer,
                   at::Device device) {
  at::Tensor output;
  if (trainer.in_half_precision) {
    const Autocast autocast(device.type());
    output = network.forward(sent(batch.input, device)).to(at::kFloat);
  } else {
    output = network.forward(sent(batch.input, device));
  }
  return at::cross_entropy_loss(output, sent(batch.target, device));
}

/// Losses, then parameters, then buffers.
Tensors trained(const Trainer& trainer, at::Device device) {
  constexpr int kSteps = 5;
  torch::manual_seed(7);
  at::Generator data = at::detail::createCPUGenerator(99);
  const std::shared_ptr<Network> network = trainer.make_network();
  network->to(device);
  const OptimizerStep step = trainer.make_optimizer(network->parameters());
  LossScale scale(device);
  Tensors all;
  for (int i = 0; i < kSteps; ++i) {
    network->zero_grad();
    const at::Tensor loss = loss_of(*network, trainer.next_batch(data), trainer, device);
    if (trainer.in_half_precision) {
      scale.backward(loss);
      scale.step(network->parameters(), step);
    } else {
      loss.backward();
      torch::nn::utils::clip_grad_norm_(network->parameters(), 1.0);
      step();
    }
    all.push_back(loss.detach());
  }
  for (const at::Tensor& parameter : network->parameters()) all.push_back(parameter.detach());
  for (const at::Tensor& buffer : network->buffers()) all.push_back(buffer);
  for (at::Tensor& tensor : all) tensor = tensor.cpu();
  return all;
}

void expect_equal_training(const Trainer& trainer) {
  const Tensors expected = trained(trainer, at::kCPU);
  const Tensors found = trained(trainer, at::Device(at::kCUDA, 0));
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(has_equal_bytes(found[i], expected[i]))
        << "tensor " << i << " of losses, parameters and buffers";
}

const MakeOptimizer kAdam = looped<torch::optim::Adam>(torch::optim::AdamOptions(1e-3));
const MakeOptimizer kAdamW = looped<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-3));
const MakeOptimizer kSgd = looped<torch::optim::SGD>(torch::optim::SGDOptions(1e-2).momentum(0.9));

auto gpt(AttentionForm form) {
  return [form] { return make_gpt(form); };
}

TEST(Training, ConvNetWithAdam) { expect_equal_training({make_conv_net, image_batch, kAdam}); }

TEST(Training, ConvNetWithAdamOverLists) {
  expect_equal_training({make_conv_net, image_batch, listed_adam});
}

TEST(Training, UNetWithSgd) { expect_equal_training({make_unet, volume_batch, kSgd}); }

TEST(Training, UNetWithFusedSgd) { expect_equal_training({make_unet, volume_batch, fused_sgd}); }

TEST(Training, GptWithFusedAttentionAndAdamW) {
  expect_equal_training({gpt(AttentionForm::kFused), text_batch, kAdamW});
}

TEST(Training, GptWithDropoutInFusedAttention) {
  expect_equal_training({gpt(AttentionForm::kFusedWithDropout), text_batch, kAdam});
}

TEST(Training, GptWithExplicitAttentionAndFusedAdamW) {
  expect_equal_training({gpt(AttentionForm::kExplicit), text_batch, fused_adam(Decay::kInWeights)});
}

TEST(Training, GptWithSgdOverLists) {
  expect_equal_training({gpt(AttentionForm::kExplicit), text_batch, listed_sgd});
}

TEST(Training, HalfPrecisionWithAScaledLoss) {
  expect_equal_training({make_plain_net, image_batch, fused_adam(Decay::kInGradient), true});
}

}  // namespace
}  // namespace spillway::emulated
