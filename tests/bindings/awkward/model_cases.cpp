// Cases about models as users have them, whose activations are neither few nor large.

#include <cmath>
#include <utility>
#include <vector>

#include "case.h"
#include "run.h"

namespace awkward {

namespace {

constexpr std::int64_t kImages = 32;  ///< Of a batch, 32 x 32 in three colours.
constexpr std::int64_t kHidden =
    32;  ///< Channels inside of a coupling: 1 MiB per batch in the first level.
constexpr int kLevels = 3;
constexpr int kFlowSteps = 32;  ///< Of one level.

/// Waves with random directions, in 256 shades of which each is spread evenly over its width.
at::Tensor synthetic_images() {
  const at::Tensor line = here::linspace(-3, 3, 32);
  const at::Tensor angle =
      here::randn({kImages, 3, 1, 1}) * line.view({32, 1}) + here::randn({kImages, 3, 1, 1}) * line;
  const at::Tensor shade = ((angle.sin() + 1) * 127.5).to(torch::kByte);
  return (shade + here::rand({kImages, 3, 32, 32})) / 256 - 0.5;
}

/// Turns each square of two by two pixels into channels of one.
at::Tensor squeeze_pixels(const at::Tensor& x) {
  const auto size = x.sizes();
  return x.view({size[0], size[1], size[2] / 2, 2, size[3] / 2, 2})
      .permute({0, 1, 3, 5, 2, 4})
      .reshape({size[0], size[1] * 4, size[2] / 2, size[3] / 2});
}

/// Log-likelihood of each image of `z` under a normal distribution, given logarithms of its
/// deviation.
at::Tensor normal_likelihood(const at::Tensor& z, const at::Tensor& mean,
                             const at::Tensor& log_deviation) {
  const at::Tensor each = -0.5 * std::log(2 * M_PI) - log_deviation -
                          0.5 * (z - mean).square() * (-2 * log_deviation).exp();
  return each.sum({1, 2, 3});
}

torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t width) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, width).padding(width / 2));
}

/// One step of a flow: normalised channels, an invertible 1 x 1 convolution, an affine coupling.
struct FlowStepImpl : torch::nn::Module {
  explicit FlowStepImpl(std::int64_t channels) {
    shift = register_parameter("shift", here::zeros({1, channels, 1, 1}));
    log_scale = register_parameter("log_scale", here::zeros({1, channels, 1, 1}));
    mixing = register_parameter(
        "mixing", std::get<0>(torch::linalg_qr(here::randn({channels, channels}))).contiguous());
    coupling = register_module(
        "coupling", torch::nn::Sequential(convolution(channels / 2, kHidden, 3), torch::nn::ReLU(),
                                          convolution(kHidden, kHidden, 1), torch::nn::ReLU()));
    last = register_module("last", convolution(kHidden, channels, 3));
    torch::nn::init::zeros_(last->weight);
    torch::nn::init::zeros_(last->bias);
  }

  /// The first batch decides where the channels begin.
  void begin_with(const at::Tensor& x) {
    const torch::NoGradGuard no_grad;
    shift.copy_(-x.mean({0, 2, 3}, /*keepdim=*/true));
    log_scale.copy_(-(x.std({0, 2, 3}, /*unbiased=*/true, /*keepdim=*/true) + 1e-6).log());
    has_begun = true;
  }

  /// The result, and the logarithm of the determinant of what was done, added to `log_determinant`.
  std::pair<at::Tensor, at::Tensor> forward(at::Tensor x, const at::Tensor& log_determinant) {
    if (!has_begun) begin_with(x);
    const std::int64_t channels = x.size(1);
    const auto pixels = static_cast<double>(x.size(2) * x.size(3));
    x = (x + shift) * log_scale.exp();
    x = torch::conv2d(x, mixing.view({channels, channels, 1, 1}));
    const std::vector<at::Tensor> halves = x.chunk(2, 1);
    const std::vector<at::Tensor> affine = last(coupling->forward(halves[0])).chunk(2, 1);
    const at::Tensor scale = torch::sigmoid(affine[0] + 2);
    x = torch::cat({halves[0], (halves[1] + affine[1]) * scale}, 1);
    const at::Tensor of_channels = log_scale.sum() + std::get<1>(torch::slogdet(mixing));
    return {x, log_determinant + of_channels * pixels + scale.log().sum({1, 2, 3})};
  }

  at::Tensor shift, log_scale, mixing;
  torch::nn::Sequential coupling;
  torch::nn::Conv2d last{nullptr};
  bool has_begun = false;
};
TORCH_MODULE(FlowStep);

/// Glow: levels of flow steps, each of which hands half of its channels to the likelihood.
struct GlowImpl : torch::nn::Module {
  GlowImpl() {
    std::int64_t channels = 3;
    for (int level = 0; level < kLevels; ++level) {
      channels *= 4;
      for (int step = 0; step < kFlowSteps; ++step) steps->push_back(FlowStep(channels));
      if (level + 1 < kLevels) {
        channels /= 2;
        priors->push_back(convolution(channels, 2 * channels, 3));
      }
    }
    register_module("steps", steps);
    register_module("priors", priors);
  }

  /// Bits that each colour of a pixel takes.
  at::Tensor loss(at::Tensor x) {
    const auto colours = static_cast<double>(x[0].numel());
    at::Tensor likelihood = here::zeros({x.size(0)});
    for (std::size_t level = 0; level < kLevels; ++level) {
      x = squeeze_pixels(x);
      for (std::size_t step = 0; step < kFlowSteps; ++step)
        std::tie(x, likelihood) =
            steps[level * kFlowSteps + step]->as<FlowStep>()->forward(x, likelihood);
      if (level + 1 == kLevels) break;
      const std::vector<at::Tensor> halves = x.chunk(2, 1);
      const std::vector<at::Tensor> prior =
          priors[level]->as<torch::nn::Conv2d>()->forward(halves[0]).chunk(2, 1);
      likelihood = likelihood + normal_likelihood(halves[1], prior[0], prior[1]);
      x = halves[0];
    }
    likelihood = likelihood + normal_likelihood(x, torch::zeros_like(x), torch::zeros_like(x));
    return 8 - likelihood.mean() / (std::log(2.0) * colours);
  }

  torch::nn::ModuleList steps, priors;
};
TORCH_MODULE(Glow);

}  // namespace

SPILLWAY_AWKWARD_CASE(glow, "a flow of hundreds of activations that share pages") {
  Glow model = placed(Glow());
  torch::optim::Adam optimizer(model->parameters(), 1e-3);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = model->loss(synthetic_images());
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model->parameters(), 50);
    optimizer.step();
    run.number("loss", loss);
  }
  note_module(run, *model);
}

}  // namespace awkward
