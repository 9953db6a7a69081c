#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "byte_copy.h"
#include "counted_draws.h"
#include "kept_storages.h"
#include "spillway/recompute/call/recorded_call.h"
#include "spillway/recompute/surroundings.h"

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
  c10::Device device = c10::kCPU;
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

/// What LibTorch needs of a recorded call.
class TorchCall final : public CallBody {
 public:
  /// `hidden`: dispatch keys that do not see its runs.
  TorchCall(const c10::OperatorHandle& called, c10::DispatchKeySet hidden)
      : op(called), hidden_keys(hidden) {}

  static TorchCall& of(RecordedCall& call) { return static_cast<TorchCall&>(call.body()); }

  std::string name() const override { return toString(op.operator_name()); }
  Bytes bytes_held() const override;
  std::vector<OutputMemory> run(const RecordedCall& call, const AddressOf& address_of) override;

  c10::OperatorHandle op;
  c10::DispatchKeySet hidden_keys;
  /// Without their tensors and generator.
  std::vector<c10::IValue> arguments;
  std::vector<TensorSlot> slots;
  std::vector<TensorArgument> tensors;
  std::vector<StorageArgument> storages;
  at::Generator generator;  ///< In the state before the call, when it draws random numbers.
  std::optional<CountedDraws> draws;  ///< Of a generator that counts them, on a device.
  std::shared_ptr<const Surroundings> surroundings;
};

}  // namespace spillway::recompute
