#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "device_bytes.h"
#include "spillway/phantoms/plain_tensor.h"
#include "spillway/pipeline/ownership/directory.h"
#include "spillway/pipeline/ownership/ownership.h"

namespace spillway::split {

/// What a program makes past the operators of its thread, by hand or on other threads: whether it
/// may still write a storage, and its bytes as a number, which goes from operator to operator until
/// one belongs to the model. There ranks compare it; what a rank makes for itself, as times to
/// print, is its own. For the program's thread.
class ProgramData {
 public:
  /// Both outlive it.
  ProgramData(const pipeline::Directory& directory, const DeviceBytes& devices)
      : directory_(directory), devices_(devices) {}

  /// Storages up to number `next` have got theirs as arguments: no operator of this thread has made
  /// those that have come since the call before.
  void note_met(std::uint64_t next);
  /// The same up to there, of what an operator has made.
  void note_made(std::uint64_t next) { next_ = next; }
  /// The program writes it by operators of this thread alone from now on.
  void note_taken(pipeline::StorageOrdinal storage) { by_hand_.erase(storage); }
  /// The same of one that has come from an archive; `number` hangs on its bytes, or is 0.
  void note_loaded(pipeline::StorageOrdinal storage, std::uint64_t number) {
    note_taken(storage);
    if (number != 0) made_of_[storage] = number;
  }
  void note_ended(pipeline::StorageOrdinal storage);

  /// Whether the program may write it without an operator; so it may what has no number. The same
  /// on all ranks.
  bool is_the_programs(std::optional<pipeline::StorageOrdinal> storage) const {
    return !storage || directory_.at(*storage).is_everywhere || by_hand_.contains(*storage);
  }

  void begin_call() {
    number_ = 0;
    read_.clear();
  }
  /// The next operator uses a storage that operators have made.
  void add(pipeline::StorageOrdinal storage);
  /// It reads these bytes, which the program has made, and which stay as long as it runs.
  /// `storage`: none where it has no number.
  void note_read(std::optional<pipeline::StorageOrdinal> storage, const at::Tensor& tensor) {
    read_.push_back({storage, &tensor});
  }
  /// Bytes of all these.
  std::size_t size_read() const;
  /// Looks at them: they are equal on all ranks, if these ever compare what comes of the call.
  void add_read();
  /// The same at once, for what will not stay.
  void add_now(const at::Tensor& tensor) { add_bytes({}, tensor); }
  /// Or at a result, where that has not been done.
  void add_result(const at::Tensor& tensor) {
    if (!read_.empty()) add_bytes({}, tensor);
  }
  /// Of all that; 0: of nothing.
  std::uint64_t number() const { return number_; }
  /// What it has made and written hangs on the same. `is_compared`: ranks have compared that;
  /// `begins_anew`: and nothing else, of its first argument.
  void end_call(std::span<const pipeline::OperatorUse> uses,
                std::span<const pipeline::MadeStorage> made, bool is_compared, bool begins_anew);

  /// A copy of the bytes that a tensor shows now, for an operator that runs later; `tensor` then
  /// lies in it. Where the program may write the storage, the one that was made for another call,
  /// if they have not changed since `add_read` of that.
  c10::Storage copy_for(const c10::OperatorHandle& op,
                        std::optional<pipeline::StorageOrdinal> storage, c10::StorageImpl& bytes,
                        phantoms::PlainTensor& tensor);

 private:
  void add_bytes(std::optional<pipeline::StorageOrdinal> storage, const at::Tensor& tensor);
  c10::Storage copy_of_shown(pipeline::StorageOrdinal storage, const c10::StorageImpl& bytes,
                             phantoms::PlainTensor& tensor);

  struct ByHand {
    std::uint64_t view = 0;    ///< What was added last, as a number, without its bytes.
    std::uint64_t shown = 0;   ///< And with them.
    std::uint64_t copied = 0;  ///< The same of the copy.
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> copy{};
    std::int64_t offset = 0;  ///< Of the tensor in the copy, in elements.
  };

  struct Read {
    std::optional<pipeline::StorageOrdinal> storage;
    const at::Tensor* tensor = nullptr;  ///< Among the arguments.
  };

  const pipeline::Directory& directory_;
  const DeviceBytes& devices_;
  std::uint64_t next_ = 0;
  std::uint64_t number_ = 0;
  std::vector<Read> read_;  ///< At which nobody has looked.
  std::unordered_map<pipeline::StorageOrdinal, ByHand> by_hand_;
  std::unordered_map<pipeline::StorageOrdinal, std::uint64_t> made_of_;
};

}  // namespace spillway::split
