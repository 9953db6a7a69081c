#include "call_arguments.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <unordered_set>

#include "spillway/base/mix.h"
#include "spillway/base/shown_text.h"
#include "spillway/recompute/operator_cache.h"

namespace spillway::split {
namespace {

std::string_view kept(const std::string& name) {
  static auto& names = *new std::unordered_set<std::string>;
  static auto& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  return *names.insert(name).first;
}

struct OperatorName {
  explicit OperatorName(const c10::OperatorHandle& op)
      : text(kept(c10::toString(op.operator_name()))) {}
  std::string_view text;
};

/// Of a number of the program that LibTorch has just made a tensor of, the bits; else 0. Who
/// computes takes its own.
std::uint64_t written_number(const c10::TensorImpl& impl, const StorageTable& storages) {
  if (!impl.is_wrapped_number() || !impl.is_cpu()) return 0;
  const c10::StorageImpl& storage = *impl.unsafe_storage().unsafeGetStorageImpl();
  if (storage.data() == nullptr || storages.knows(storage)) return 0;
  std::array<std::uint64_t, 2> bits{};  // It may be complex.
  const std::size_t item = std::min(impl.itemsize(), sizeof bits);
  std::memcpy(bits.data(),
              static_cast<const std::byte*>(storage.data()) + impl.storage_offset() * item, item);
  return mix(bits[0], bits[1]);
}

std::uint64_t number_of(const at::Tensor& tensor, StorageTable& storages) {
  constexpr std::uint64_t kUndefined = 1;
  if (!tensor.defined()) return kUndefined;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  std::uint64_t hash = static_cast<std::uint64_t>(tensor.scalar_type());
  if (!tensor.is_cpu()) hash = mix(hash, static_cast<std::uint64_t>(tensor.device().type()));
  for (const std::int64_t size : tensor.sizes()) hash = mix(hash, static_cast<std::uint64_t>(size));
  if (!impl.has_storage()) return hash;
  for (const std::int64_t stride : tensor.strides())
    hash = mix(hash, static_cast<std::uint64_t>(stride));
  // Views are seen here alone.
  hash = mix(hash, static_cast<std::uint64_t>(impl.storage_offset()));
  hash = mix(hash, written_number(impl, storages));
  c10::StorageImpl& storage = *impl.unsafe_storage().unsafeGetStorageImpl();
  const auto ordinal = storage.data() == nullptr ? std::nullopt : storages.ordinal_of(storage);
  return mix(hash, ordinal ? ordinal->value() : pipeline::StorageOrdinal::kNone);
}

std::uint64_t number_of(const c10::IValue& value, StorageTable& storages) {
  constexpr std::uint64_t kFileName = 4;
  if (value.isTensor()) return number_of(value.toTensor(), storages);
  if (value.isInt()) return static_cast<std::uint64_t>(value.toInt());
  if (value.isBool()) return value.toBool() ? 2 : 3;
  if (value.isDouble()) return std::bit_cast<std::uint64_t>(value.toDouble());
  if (value.isDevice()) return static_cast<std::uint64_t>(value.toDevice().type());
  // Names of temporary files differ between ranks.
  if (value.isString() && value.toStringRef().find('/') != std::string::npos) return kFileName;
  if (value.isString()) return std::hash<std::string>()(value.toStringRef());
  if (!value.isList()) return 0;
  std::uint64_t hash = value.toListRef().size();
  for (const c10::IValue& element : value.toListRef())
    hash = mix(hash, number_of(element, storages));
  return hash;
}

}  // namespace

std::string_view kept_name_of(const c10::OperatorHandle& op) {
  thread_local recompute::OperatorCache<OperatorName> names;
  return names.of(op).text;
}

std::string failure_text(const std::exception& error) {
  return with_next_step(
      first_line(error.what()),
      "without --split the program gets this error at the call, and may catch it");
}

void add_arguments(pipeline::ControlHash& hash, StorageTable& storages,
                   c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) hash.add(number_of(argument, storages));
}

}  // namespace spillway::split
