#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

namespace spillway::torch_binding {

/// Which storages hold leaves that require a gradient. Optimizers may write them through tensors
/// that do not: `torch::optim::SGD` writes `parameter.data()`. Not thread-safe.
class ParameterStorages {
 public:
  void add(const c10::Storage& storage) {
    c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    if (storages_.contains(impl)) return;
    if (storages_.size() >= next_sweep_) sweep();
    storages_.try_emplace(impl, storage.getWeakStorageImpl());
  }

  /// The storage of a leaf, whose gradient can be asked for as long as it lives.
  void add_leaf(const at::Tensor& leaf) {
    add(leaf.storage());
    Known& known = storages_.find(leaf.storage().unsafeGetStorageImpl())->second;
    if (known.leaf.expired()) known.leaf = Leaf(leaf.getIntrusivePtr());
  }

  /// Calls `act` with the gradient of each leaf that has one.
  template <class Act>
  void for_each_gradient(const Act& act) const {
    for (const auto& [impl, known] : storages_) {
      const at::Tensor leaf(known.leaf.lock());
      if (leaf.defined() && leaf.grad().defined() && leaf.grad().has_storage()) act(leaf.grad());
    }
  }

  /// Bytes of those that are alive and for which `is_small` says so.
  template <class IsSmall>
  std::uint64_t small_bytes(const IsSmall& is_small) const {
    std::uint64_t bytes = 0;
    for (const auto& [impl, known] : storages_)
      if (!known.alive.expired() && is_small(*impl)) bytes += impl->nbytes();
    return bytes;
  }

  bool contains(const c10::Storage& storage) const {
    return storages_.contains(storage.unsafeGetStorageImpl());
  }

 private:
  using Leaf = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Known {
    explicit Known(c10::weak_intrusive_ptr<c10::StorageImpl> storage) : alive(std::move(storage)) {}
    c10::weak_intrusive_ptr<c10::StorageImpl> alive;
    Leaf leaf{c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
  };

  void sweep() {
    std::erase_if(storages_, [](const auto& each) { return each.second.alive.expired(); });
    next_sweep_ = 2 * storages_.size() + kFirstSweep;
  }

  static constexpr std::size_t kFirstSweep = 1024;

  // What is only known here has lost its bytes, but keeps its address from being used again.
  std::unordered_map<c10::StorageImpl*, Known> storages_;
  std::size_t next_sweep_ = kFirstSweep;
};

}  // namespace spillway::torch_binding
