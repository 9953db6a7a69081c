#pragma once

#include <ATen/core/Tensor.h>

namespace spillway::split {

/// Whether a tensor is what Python calls torch.nn.Parameter; not where no Python runs. Waits for
/// its lock, so hold no other.
bool is_python_parameter(const at::Tensor& tensor);

}  // namespace spillway::split
