#pragma once

namespace spillway::torch_binding {

/// Has Python's `Tensor.data_ptr()` hold what it gives an address of, for kernels past the
/// operators: Triton's, and so those of `torch.compile`, and what goes by
/// `__cuda_array_interface__`. Once torch.Tensor is there; the caller holds Python's lock.
void watch_python_pointers();

}  // namespace spillway::torch_binding
