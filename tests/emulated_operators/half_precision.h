#pragma once

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "compared.h"

namespace spillway::emulated {

/// Autocast to bf16 for as long as it lives.
class Autocast {
 public:
  explicit Autocast(at::DeviceType device) : device_(device) {
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
};

/// What torch.amp.GradScaler does, with its operators.
class LossScale {
 public:
  explicit LossScale(at::Device device)
      : value_(at::full({}, 65536.0, at::TensorOptions(device))),
        growth_(at::zeros({}, at::TensorOptions(device).dtype(at::kInt))) {}

  void backward(const at::Tensor& loss) const { (loss * value_).backward(); }

  /// Without a step where a gradient is not finite.
  template <class Step>
  void step(const Tensors& parameters, Step step) {
    Tensors gradients;
    for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
    at::Tensor found = at::zeros_like(value_);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, value_.reciprocal());
    if (found.item<float>() == 0) step();
    at::_amp_update_scale_(value_, growth_, found, 2.0, 0.5, 2);
  }

  const at::Tensor& value() const { return value_; }

 private:
  at::Tensor value_;
  at::Tensor growth_;
};

}  // namespace spillway::emulated
