#include "call_kind.h"

#include <ATen/core/Tensor.h>
#include <c10/util/hash.h>

#include <cmath>
#include <functional>
#include <string>

namespace spillway::torch_binding {
namespace {

class KindHash {
 public:
  explicit KindHash(const c10::OperatorHandle& op)
      : kind_(std::hash<const void*>()(&op.schema())) {}

  void add(const c10::IValue& value) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isList()) {
      const c10::ArrayRef<c10::IValue> elements = value.toListRef();
      add(elements.size());
      for (const c10::IValue& element : elements) add(element);
    } else {
      add_single(value);
    }
  }
  std::uint64_t value() const { return kind_; }

 private:
  void add(std::size_t number) { kind_ = c10::hash_combine(kind_, number); }

  template <typename Numbers>
  void add_all(const Numbers& numbers) {
    add(numbers.size());
    for (const std::int64_t number : numbers) add(static_cast<std::size_t>(number));
  }

  void add(const at::Tensor& tensor) {
    add(std::size_t{tensor.defined()});
    if (!tensor.defined()) return;
    add(static_cast<std::size_t>(tensor.scalar_type()));
    // One number of the flags: most are never set.
    add(std::size_t{tensor.requires_grad()} + 2 * std::size_t{tensor.is_conj()} +
        4 * std::size_t{tensor.is_neg()} +
        8 * std::size_t{tensor.unsafeGetTensorImpl()->is_wrapped_number()});
    add_all(tensor.sizes());
    add_all(tensor.strides());
  }

  void add(double number) {
    constexpr double kLargest = 16.0;
    const bool is_special =
        std::fabs(number) <= kLargest && 2.0 * number == std::rint(2.0 * number);
    add(std::size_t{std::isfinite(number)} + 2 * std::size_t{std::isnan(number)});
    add(is_special ? std::hash<double>()(number) : 1);
  }

  void add_single(const c10::IValue& value) {
    if (value.isInt()) {
      add(static_cast<std::size_t>(value.toInt()));
    } else if (value.isBool()) {
      add(std::size_t{value.toBool()});
    } else if (value.isDouble()) {
      add(value.toDouble());
    } else if (value.isString()) {
      add(std::hash<std::string>()(value.toStringRef()));
    }
    add(std::size_t{value.isNone()});
  }

  std::size_t kind_;
};

}  // namespace

std::uint64_t kind_of(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  KindHash kind(op);
  for (const c10::IValue& argument : arguments) kind.add(argument);
  return kind.value();
}

}  // namespace spillway::torch_binding
