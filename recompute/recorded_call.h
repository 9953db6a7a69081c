#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "byte_copy.h"
#include "kept_storages.h"
#include "spillway/recompute/op_record.h"
#include "surroundings.h"

namespace spillway::recompute {

/// The part of a storage that a call's arguments show.
struct StorageArgument {
  StorageId id;
  std::shared_ptr<KeptStorage> kept;  ///< Where it is not paged. Neither: no bytes are shown.
  std::size_t offset = 0;             ///< Of its first byte in the paged or kept storage.
  std::size_t bytes = 0;
  const std::byte* address = nullptr;  ///< Of its first byte, at the call.
  bool written = false;                ///< As the schema says.
  bool scratch = false;                ///< Each replay gets a copy of its own.
  /// Until a verification: what the call is about to write.
  std::optional<ByteCopy> before;
};

struct TensorArgument {
  using Dimensions = c10::SmallVector<std::int64_t, 5>;

  std::uint32_t storage = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  bool conjugated = false;
  bool negated = false;
  bool requires_grad = false;  ///< Kernels of convolutions choose by it.
  bool wrapped_number = false;
  std::int64_t offset = 0;  ///< In the shown part, in elements as sizes and strides are.
  Dimensions sizes;
  Dimensions strides;
};

/// Where a tensor belongs among the arguments.
struct TensorSlot {
  std::uint32_t argument = 0;
  std::int32_t element = -1;  ///< Of the argument, when that is a list.
  std::uint32_t tensor = 0;
};

class RecordedCall final : public OpRecord {
 public:
  explicit RecordedCall(const c10::OperatorHandle& op) : OpRecord(op) {}

  Bytes bytes_held() const override;

  using OpRecord::inputs_;
  using OpRecord::outputs_;

  /// Without their tensors and generator.
  std::vector<c10::IValue> arguments;
  std::vector<TensorSlot> slots;
  std::vector<TensorArgument> tensors;
  std::vector<StorageArgument> storages;
  at::Generator generator;  ///< In the state before the call, when it draws random numbers.
  std::shared_ptr<const Surroundings> surroundings;
  /// Per output: which of the result tensors, counted through lists, lies in it.
  std::vector<std::uint32_t> output_tensors;
};

}  // namespace spillway::recompute
