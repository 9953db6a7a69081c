#include "call_key.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>

#include <bit>
#include <functional>
#include <string_view>

#include "spillway/phantoms/plain_tensor.h"
#include "spillway/recompute/operator_cache.h"

namespace spillway::phantoms {
namespace {

using Numbers = ResultRules::Numbers;

class KeyHash {
 public:
  KeyHash(const c10::OperatorHandle& op, bool sees_offsets) : sees_offsets_(sees_offsets) {
    add(std::bit_cast<std::uintptr_t>(&op.schema()));
    // Another one may lie there later.
    add(recompute::ended_operators.load(std::memory_order_relaxed));
    const bool grad_mode = c10::AutogradState::get_tls_state().get_grad_mode();
    const bool mkldnn = at::globalContext().userEnabledMkldnn();
    add(unsigned{grad_mode} + 2 * unsigned{mkldnn} +
        4 * static_cast<unsigned>(c10::get_default_dtype_as_scalartype()));
  }

  void add(const c10::IValue& value, Numbers numbers) {
    // Tensors first: most arguments are.
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isIntList()) {
      const auto list = value.toIntVector();
      add(list.size());
      for (const std::int64_t number : list) add(static_cast<std::uint64_t>(number));
    } else if (value.isList()) {
      const c10::ArrayRef<c10::IValue> elements = value.toListRef();
      add(elements.size());
      for (const c10::IValue& one : elements) add(one, numbers);
    } else {
      add_single(value, numbers);
    }
  }
  std::uint64_t value() const { return hash_; }

 private:
  // One product of 128 bits mixes all bits of both.
  void add(std::uint64_t number) {
    constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15ull;
    constexpr std::uint64_t kOther = 0xD6E8FEB86659FD93ull;
    __extension__ using Product = unsigned __int128;
    const auto product = static_cast<Product>(hash_ ^ kOdd) * (number ^ kOther);
    hash_ = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64) ^
            std::rotl(hash_, 23);
  }

  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      add(std::uint64_t{1});
      return;
    }
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const c10::IntArrayRef sizes = impl.sizes();
    add(2 + 4 * TensorFlags::of(impl).bits() +
        128 * static_cast<std::uint64_t>(c10::typeMetaToScalarType(impl.dtype())) +
        (static_cast<std::uint64_t>(sizes.size()) << 32));
    for (const std::int64_t size : sizes) add(static_cast<std::uint64_t>(size));
    for (const std::int64_t stride : impl.strides()) add(static_cast<std::uint64_t>(stride));
    if (!impl.is_cpu()) add(static_cast<std::uint64_t>(impl.device_type()));
    if (sees_offsets_) add(static_cast<std::uint64_t>(impl.storage_offset()));
  }

  void add_single(const c10::IValue& value, Numbers numbers) {
    enum Type : std::uint64_t { kNone, kBool, kInt, kDouble, kString, kDevice, kOther };
    if (value.isInt()) {
      add(kInt);
      if (numbers != Numbers::kTypeOnly) add(static_cast<std::uint64_t>(value.toInt()));
    } else if (value.isBool()) {
      add(kBool + (value.toBool() ? 16 : 0));
    } else if (value.isDouble()) {
      add(kDouble);
      add(value.toDouble(), numbers);
    } else if (value.isNone()) {
      add(std::uint64_t{kNone});
    } else if (value.isString()) {
      add(kString + 16 * std::hash<std::string_view>()(value.toStringView()));
    } else if (value.isDevice()) {
      add(kDevice + 16 * static_cast<std::uint64_t>(value.toDevice().type()));
    } else {
      // Complex numbers and generators.
      add(kOther + (value.isComplexDouble() ? 16 : 0));
    }
  }

  void add(double number, Numbers numbers) {
    if (numbers == Numbers::kAll)
      add(std::bit_cast<std::uint64_t>(number));
    else if (numbers == Numbers::kZeroOrOne)
      add(std::uint64_t{number == 0.0} + 2 * std::uint64_t{number == 1.0});
  }

  const bool sees_offsets_;
  std::uint64_t hash_ = 0;
};

template <typename Holds>
bool any_tensor(c10::ArrayRef<c10::IValue> values, Holds holds) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      if (value.toTensor().defined() && holds(*value.toTensor().unsafeGetTensorImpl())) return true;
    } else if (value.isList() && !value.isIntList() && any_tensor(value.toListRef(), holds)) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool has_plain_tensors(c10::ArrayRef<c10::IValue> arguments) {
  return !any_tensor(arguments, [](const c10::TensorImpl& tensor) { return !is_plain(tensor); });
}

bool has_mask(const c10::IValue& indices) {
  return any_tensor(indices, [](const c10::TensorImpl& tensor) {
    const c10::ScalarType type = c10::typeMetaToScalarType(tensor.dtype());
    return type == c10::ScalarType::Bool || type == c10::ScalarType::Byte;
  });
}

std::uint64_t key_of(const c10::OperatorHandle& op, const ResultRules& rules,
                     c10::ArrayRef<c10::IValue> arguments) {
  KeyHash key(op, rules.sees_offsets());
  for (std::size_t i = 0; i < arguments.size(); ++i) key.add(arguments[i], rules.numbers()[i]);
  return key.value();
}

}  // namespace spillway::phantoms
