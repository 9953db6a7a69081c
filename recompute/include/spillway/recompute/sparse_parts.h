#pragma once

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/SparseTensorUtils.h>

#include <initializer_list>

namespace spillway::recompute {

/// Calls `visit(const at::Tensor&)` for each dense tensor of which one is made that is sparse.
template <typename Visit>
void for_each_part(const at::Tensor& tensor, const Visit& visit) {
  const auto visit_all = [&](std::initializer_list<at::Tensor> parts) {
    for (const at::Tensor& part : parts)
      if (part.defined()) visit(part);
  };
  if (tensor.is_sparse()) {
    const auto* impl = at::sparse::get_sparse_impl(tensor);
    visit_all({impl->indices(), impl->values()});
  } else if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto* impl = at::sparse_csr::get_sparse_csr_impl(tensor);
    visit_all({impl->compressed_indices(), impl->plain_indices(), impl->values()});
  }
}

}  // namespace spillway::recompute
