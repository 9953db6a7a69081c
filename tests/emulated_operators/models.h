#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

/// Small networks of the kinds that are trained out of core.
namespace spillway::emulated {

class Network : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& input) = 0;
};

struct Batch {
  at::Tensor input;
  at::Tensor target;
};

/// Batch norm, dropout, grouped convolution, in-place activations, pools.
std::shared_ptr<Network> make_conv_net();
/// Three dimensions, instance and batch norm, transposed convolution, trilinear interpolation.
std::shared_ptr<Network> make_unet();
enum class AttentionForm { kFused, kFusedWithDropout, kExplicit };
std::shared_ptr<Network> make_gpt(AttentionForm form);
/// Convolutions and a linear layer: what autocast computes in bf16 on either device.
std::shared_ptr<Network> make_plain_net();

Batch image_batch(at::Generator& generator);
Batch volume_batch(at::Generator& generator);
Batch text_batch(at::Generator& generator);

}  // namespace spillway::emulated
