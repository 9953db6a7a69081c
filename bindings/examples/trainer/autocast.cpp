#include "trainer/autocast.h"

#include <ATen/autocast_mode.h>

namespace trainer {

Autocast::Autocast(torch::DeviceType device) : device_(device) {
  at::autocast::set_autocast_dtype(device_, torch::kBFloat16);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  // Parameters in bfloat16 are kept for the operators of one forward.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, false);
}

}  // namespace trainer
