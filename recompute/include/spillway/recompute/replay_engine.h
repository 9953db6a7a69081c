#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "spillway/base/bytes.h"
#include "spillway/recompute/call/recorded_call.h"

namespace spillway::recompute {

/// The paged storage that some memory lies in; none when it lies in none.
struct PagedStorage {
  StorageId id;
  const void* address = nullptr;  ///< Of its first byte.
};

struct ReplayEngineOptions {
  /// Of the tensors whose calls it records. A CUDA device may have small ones of the host beside.
  c10::Device device = c10::kCPU;
  /// Storages up to this size that are not paged are copied into the record. Larger ones are
  /// referred to, and copied when they are about to be written.
  Bytes copied_up_to = Bytes(64 << 10);
  /// Larger ones that are not paged are not kept at all.
  Bytes referred_up_to = Bytes(4 << 20);
  /// Dispatch keys that do not see replays: that of the caller's interception.
  c10::DispatchKeySet hidden_keys;
  /// Of the memory whose end `before_free` tells; none: that of the CPU allocator, as it is now.
  c10::DeleterFnPtr deleter = nullptr;
  /// Frees a block that `before_free` has kept. Any thread. None: such blocks are copied instead.
  std::function<void(void* memory)> give_back;
};

class KeptStorages;

/// Whose turn it is to draw from the generators of a device. An operator that has it may have
/// others run again before it draws itself.
using DrawTurns = std::shared_ptr<std::recursive_timed_mutex>;

/// Records calls of operators on tensors of one device below autograd, for other runs with the same
/// bits
/// (`RecordedCall::run`), and makes such a run itself to compare (`verify`). Any thread may record
/// and replay; calls on one record must not overlap, replays apart.
///
/// The caller's part, at each outermost operator below autograd: `record`, `before_call`, the
/// kernel, `complete`; and `before_free` where the CPU allocator takes memory back. It sees to it
/// that the memory of a replay's arguments is there and holds what it held at the call.
class ReplayEngine {
 public:
  using FindStorage = std::function<PagedStorage(const void* data)>;

  /// `find` is called on all threads that record.
  explicit ReplayEngine(FindStorage find, ReplayEngineOptions options = {});
  ~ReplayEngine();
  ReplayEngine(const ReplayEngine&) = delete;
  ReplayEngine& operator=(const ReplayEngine&) = delete;

  /// To be kept from before `record` until the kernel has been called: on a device, operators that
  /// draw random numbers take turns, with those that run again. Empty for others. Throws Error
  /// where its turn does not come.
  std::unique_lock<std::recursive_timed_mutex> take_turn(const c10::OperatorHandle& op);

  /// Notes a call that is about to run. Returns none, and the reason in `*objection`, when it
  /// cannot run again: the operator may not (`OperatorRules`), or an argument cannot be kept.
  std::optional<RecordedCall> record(const c10::OperatorHandle& op,
                                     c10::ArrayRef<c10::IValue> arguments,
                                     std::string* objection = nullptr);

  /// Announces that somebody is about to write, so that records keep what was there.
  void before_write(const c10::StorageImpl& storage);
  void before_write(const void* memory);  ///< The same to a block around that address.
  bool heeds_writes() const;  ///< Whether `before_write` may have something to do. Lock-free.
  /// The same of all that an operator is about to write. After `record`, for every operator,
  /// recorded or not.
  void before_call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);

  /// Announces that the allocator is about to free the block that begins there. True: records read
  /// it, so it is not to be freed; `give_back` gets it when they do no more. Any thread.
  bool before_free(const void* memory) noexcept;

  /// Notes what the call gave. False, and the reason, when it cannot run again after all, or made
  /// and wrote nothing that is paged: the record is of no use then.
  bool complete(RecordedCall& call, c10::ArrayRef<c10::IValue> results,
                std::string* objection = nullptr);

  /// Before the call: makes `verify` possible, by a copy of what the call will write.
  void prepare_verification(RecordedCall& call);

  /// Right after `complete`, before anything else writes, and while the caller still holds the
  /// storages among the arguments (a kernel's stack may be all that has them): replays into fresh
  /// memory and compares with what the call gave. Returns the difference in words, empty when every
  /// bit is equal and nothing else has changed. What the operator throws is a difference.
  std::string verify(RecordedCall& call, c10::ArrayRef<c10::IValue> results);

  /// What all records keep beyond the trainer's own memory: copies, and blocks that the trainer has
  /// given up.
  Bytes bytes_held() const;
  /// The most bytes of these copies at once so far.
  Bytes most_copied() const;

 private:
  FindStorage find_;
  ReplayEngineOptions options_;
  std::shared_ptr<KeptStorages> kept_;
  const DrawTurns turns_ = std::make_shared<std::recursive_timed_mutex>();
};

}  // namespace spillway::recompute
