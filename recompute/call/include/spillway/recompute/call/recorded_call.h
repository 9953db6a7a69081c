#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "spillway/base/autograd_facts.h"
#include "spillway/base/bytes.h"
#include "spillway/base/storage_id.h"

namespace spillway::recompute {

/// A paged storage among the arguments of an operator.
struct StorageUse {
  StorageId id;
  bool written = false;

  bool operator==(const StorageUse&) const = default;
};

/// A paged storage that an operator makes.
struct StorageMade {
  StorageId id;
  Bytes bytes;               ///< As LibTorch asked for them.
  std::uint32_t result = 0;  ///< Lies in this result tensor, counted through lists.

  bool operator==(const StorageMade&) const = default;
};

/// Fresh memory that a run of a call has made for one of its outputs.
struct OutputMemory {
  StorageId id;
  void* address = nullptr;
  Bytes bytes;
  std::shared_ptr<void> memory;  ///< Gives it back.
};

/// Address of the first byte of a paged storage, or of a stand-in; nullptr when there is none.
using AddressOf = std::function<void*(StorageId id)>;

class RecordedCall;

/// What only the library can read whose operator it is: operator, other arguments, generator,
/// settings of the thread.
class CallBody {
 public:
  virtual ~CallBody() = default;
  /// With overload: "aten::add.Tensor".
  virtual std::string name() const = 0;
  /// Of itself and of the copies that it alone has.
  virtual Bytes bytes_held() const = 0;

  /// As `RecordedCall::run`, for the call that this is the body of.
  virtual std::vector<OutputMemory> run(const RecordedCall& call, const AddressOf& address_of) = 0;
};

/// One call of an operator, which may run again, or has not run yet. Has one owner, who may be on
/// any thread. It names storages and holds no tensor, storage or memory of the program: its
/// reference counts, by which autograd decides whether to copy, are what they are without it.
class RecordedCall {
 public:
  explicit RecordedCall(std::unique_ptr<CallBody> body);

  std::vector<StorageUse> inputs;    ///< Paged storages among the arguments, each once.
  std::vector<StorageMade> outputs;  ///< Those that it has made; before its first run, is to make.
  AutogradFacts autograd;            ///< Of the program's run.

  std::string name() const { return body_->name(); }
  Bytes bytes_held() const { return body_->bytes_held(); }
  bool writes_some() const;

  /// Runs it on the calling thread, below autograd and under the settings of the call (gradients,
  /// autocast, threads, precision, random numbers), which are put back afterwards, on inputs that
  /// lie at these addresses now, in memory. Inputs that it writes are written there. Returns memory
  /// for each output. Throws what the operator throws, and Error where an input has no address;
  /// written inputs then hold anything, all else is as before.
  std::vector<OutputMemory> run(const AddressOf& address_of) const;

  /// For the library whose operator it is.
  CallBody& body() { return *body_; }
  const CallBody& body() const { return *body_; }

 private:
  std::unique_ptr<CallBody> body_;
};

}  // namespace spillway::recompute
