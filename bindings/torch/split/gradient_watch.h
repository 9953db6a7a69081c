#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "parameter_order.h"
#include "shard_exchange.h"
#include "spillway/pipeline/ownership/directory.h"
#include "spillway/pipeline/ownership/ownership.h"
#include "storage_table.h"

namespace spillway::split {

/// The leaf that a tensor is, or is a view of; undefined where that is not found.
at::Tensor leaf_of(const at::Tensor& tensor);

/// The leaf that an argument with that storage is, or is a view of; else that argument.
at::Tensor leaf_in(c10::ArrayRef<c10::IValue> arguments, const c10::StorageImpl& storage);

/// Whose gradient backward adds to at the moment, or null.
const at::Tensor* variable_of_running_node();

/// Whether an operator writes its first argument whatever was there.
bool overwrites_first(std::string_view name);

/// Knows which bytes are gradients of parameters that backward has changed and no exchange has seen
/// since. Autograd may put a gradient in its place without an operator, so it compares what the
/// parameters have as gradients before and after a backward. The program's thread.
class GradientWatch {
 public:
  /// A gradient in a storage.
  struct Gradient {
    ExchangedParameter parameter;
    allreduce::Element element{};
    std::uint64_t begin = 0;
    Bytes size;
    c10::StorageImpl* storage = nullptr;  ///< Which lives, as its number does.
  };

  GradientWatch(StorageTable& storages, ParameterOrder& order)
      : storages_(storages), order_(order) {}

  /// A storage that forward uses for the first time as a parameter, or as another leaf.
  void add_parameter(pipeline::StorageOrdinal storage, ExchangedParameter parameter);
  void add_free_leaf(pipeline::StorageOrdinal storage) { free_leaves_.insert(storage); }
  /// Of an operator of forward: parameters among its arguments. Throws UnsupportedError for one in
  /// memory that is not LibTorch's, and for a new one of a model that has been used before it was
  /// made: data may have chosen which one that is.
  void note_forward(c10::ArrayRef<c10::IValue> arguments);
  /// An operator outside of backward writes those storages; `overwrites`: whatever was there.
  /// Whether one is a parameter. Throws UnsupportedError for free leaves, which are not written as
  /// parameters are.
  bool updates(std::span<const pipeline::OperatorUse> uses, bool overwrites) const;

  /// Before an operator inside of backward runs. `variable`: whose gradient backward adds to at the
  /// moment, or null. Returns the storages whose gradients a hook reads. Throws UnsupportedError
  /// for one that writes another parameter.
  std::vector<pipeline::StorageOrdinal> read_in_backward(const c10::OperatorHandle& op,
                                                         c10::ArrayRef<c10::IValue> arguments,
                                                         const at::Tensor* variable);
  /// Before one outside of backward: the storages whose gradients it reads. Throws UnsupportedError
  /// for a gradient that cannot be averaged.
  std::vector<pipeline::StorageOrdinal> read_by(const c10::OperatorHandle& op,
                                                c10::ArrayRef<c10::IValue> arguments);
  /// Before the program looks at a storage.
  bool is_changed(pipeline::StorageOrdinal storage);

  const std::vector<Gradient>& at(pipeline::StorageOrdinal storage) const {
    return changed_.at(storage);
  }
  /// They are exchanged.
  std::vector<Gradient> take(pipeline::StorageOrdinal storage);
  void ended(pipeline::StorageOrdinal storage);

 private:
  /// What backward adds to, and what was there before it.
  struct Leaf {
    ExchangedParameter parameter;
    c10::weak_intrusive_ptr<c10::TensorImpl> variable;
    const c10::TensorImpl* gradient = nullptr;
    std::uint32_t version = 0;  ///< Of the gradient: how often it has been changed.

    bool changes_to(const at::Tensor& now);
  };

  void note_use(const ExchangedParameter& parameter);
  void refuse_foreign(const at::Tensor& tensor) const;
  void refuse_update(const at::Tensor& written, const at::Tensor* variable) const;
  void begin_backward();
  void end_backward();
  void add(const ExchangedParameter& parameter, const at::Tensor& gradient);
  std::optional<pipeline::StorageOrdinal> changed(const at::Tensor& tensor) const;

  StorageTable& storages_;
  ParameterOrder& order_;
  std::unordered_map<pipeline::StorageOrdinal, ExchangedParameter> parameters_;
  std::unordered_set<pipeline::StorageOrdinal> free_leaves_;
  std::vector<Leaf> leaves_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> numbers_;  ///< Of leaves.
  std::unordered_map<pipeline::StorageOrdinal, std::vector<Gradient>> changed_;
  bool is_in_backward_ = false;

  // Since the latest backward.
  std::string newest_, oldest_;  ///< Parameters that forward has used, for people.
  std::uint64_t newest_forward_ = 0, oldest_forward_ = ~std::uint64_t{0};
  bool has_new_ = false;  ///< One was used for the first time.
};

}  // namespace spillway::split
