#pragma once

#include <torch/torch.h>

namespace trainer {

/// While it lives, LibTorch computes in bfloat16 what needs no more on this device: matrix products
/// and convolutions, but no losses. For a forward; a backward computes as the forward did.
class Autocast {
 public:
  explicit Autocast(torch::DeviceType device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const torch::DeviceType device_;
};

}  // namespace trainer
