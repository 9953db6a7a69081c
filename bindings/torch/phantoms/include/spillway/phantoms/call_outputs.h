#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::phantoms {

/// What a rank does about an operator that it need not compute.
enum class Making : std::uint8_t {
  kPhantoms,  ///< Makes its results without bytes.
  kNoBytes,   ///< Runs it: it makes views, looks at sizes, or hands memory out unfilled.
  kParts,     ///< Runs it, and asks for each operator that it calls: in inference mode.
  kValues,    ///< Runs it on the bytes: what it returns or how much it draws hangs on them.
};

/// A tensor among the results.
struct TensorMade {
  enum class From : std::uint8_t {
    kUndefined,   ///< It is none.
    kArgument,    ///< It is that argument itself.
    kStorage,     ///< It shares the storage of that argument.
    kNewStorage,  ///< It lies in that new storage.
  };
  From from = From::kUndefined;
  bool conjugated = false;
  bool negated = false;
  bool wrapped_number = false;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  /// Number of the tensor among those of the arguments, or of the new storage.
  std::uint32_t number = 0;
  std::int64_t offset = 0;  ///< In elements; from that of the argument whose storage it shares.
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;
};

/// One result of an operator.
struct ResultMade {
  enum class Kind : std::uint8_t { kArgument, kTensor, kList };
  Kind kind = Kind::kTensor;
  std::uint32_t first = 0;  ///< Number of the argument, or of its first tensor.
  std::uint32_t count = 1;  ///< Of its tensors.
};

/// What calls of one kind make. Values only: it refers to no tensor.
struct CallOutputs {
  Making making = Making::kPhantoms;
  /// Why it is not kPhantoms, as the end of a sentence ("makes a view").
  std::string reason;
  std::vector<ResultMade> results;
  std::vector<TensorMade> tensors;
  std::vector<std::size_t> storages;  ///< New ones, with their bytes.
  std::vector<c10::Device> devices;   ///< Of the same.
  /// From its generator: 32 bits each, or, on a GPU, by how much its offset grows.
  std::uint64_t draws = 0;
  /// Its draws hang on the generator's state: the kernel has to run to move it on.
  bool draws_by_state = false;
};

}  // namespace spillway::phantoms
