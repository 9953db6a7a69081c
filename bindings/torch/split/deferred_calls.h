#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "executor.h"
#include "spillway/pipeline/ownership/directory.h"

namespace spillway::split {

inline constexpr std::size_t kSmall = 4096;  ///< Bytes that each rank may have for itself.

/// What an operator's name and tags say about running it where its results are needed, and not
/// where they are not.
struct DeferRule {
  explicit DeferRule(const c10::OperatorHandle& op);
  static const DeferRule& of(const c10::OperatorHandle& op);

  bool may_wait = false;     ///< It throws for no value of a tensor of real numbers or flags.
  bool of_any_type = false;  ///< Nor for one of another type.
  bool overwrites = false;   ///< All of its first argument, which it does not read.
  /// The same operator with a generator among its arguments, where it has none itself, and where.
  std::optional<c10::OperatorHandle> with_generator;
  std::size_t generator_argument = 0;
};

/// Lets a call draw from that generator, by its own argument for one or by the overload with one.
void draw_from(const at::Generator& generator, PendingCall& call);

/// Whether a tensor shows each byte of its storage.
bool shows_all(const at::Tensor& tensor);

/// Calls that each rank could compute, of which none needs the results so far: initialisers, random
/// batches and masks. A rank that needs them hands the calls on to its executor, with all that they
/// depend on, in the order of the program. One that will not need them drops them. What a rank does
/// with its own is no business of the others. For the program's thread.
class DeferredCalls {
 public:
  /// Gives a call to the executor.
  using Submit = std::function<void(PendingCall, std::span<const pipeline::StorageOrdinal> reads,
                                    std::span<const pipeline::StorageOrdinal> writes)>;
  DeferredCalls(Executor& executor, Submit submit);
  DeferredCalls(const DeferredCalls&) = delete;
  DeferredCalls& operator=(const DeferredCalls&) = delete;

  /// Whether another call that uses these storages may wait: calls take memory, and those that wait
  /// for others in a row are ended in a row.
  bool has_room(std::span<const pipeline::StorageOrdinal> used) const;
  /// Whether the bytes of a storage are to come from here.
  bool are_here(pipeline::StorageOrdinal storage) const;

  /// A storage that a call makes or writes.
  struct Written {
    pipeline::StorageOrdinal storage;
    c10::StorageImpl* seen = nullptr;  ///< By the program.
    bool is_parameter = false;         ///< As far as its tensor tells.
    bool begins_anew = false;          ///< What was there before does not matter.
  };
  void add(PendingCall call, std::span<const pipeline::StorageOrdinal> reads,
           std::span<const Written> writes);
  /// This rank uses the bytes of a storage, or is to change them, in what it computes next.
  void want(pipeline::StorageOrdinal storage, bool writes);
  /// The bytes of a storage are of no more use to the program on this rank, here and with the
  /// executor.
  void drop(pipeline::StorageOrdinal storage);
  /// Calls `visit(storage, seen)` for those that a call has made or written and that live, except
  /// parameters.
  void for_each_but_parameters(
      const std::function<void(pipeline::StorageOrdinal, c10::StorageImpl&)>& visit) const;

 private:
  struct Call;
  /// What calls call a storage: the program's number for it, or, when the program has let go of
  /// what they use, one of this rank alone.
  struct Name {
    pipeline::StorageOrdinal storage;
    bool is_own = false;
    std::vector<std::weak_ptr<Call>> users{};
  };
  struct Call {
    Call(PendingCall made, std::uint64_t place) : call(std::move(made)), number(place) {}

    PendingCall call;
    std::uint64_t number = 0;  ///< In the order of the program.
    std::uint32_t depth = 0;   ///< Of calls that wait for one another.
    bool is_done = false;      ///< With the executor.
    struct Use {
      pipeline::StorageOrdinal storage;  ///< As it was called at first.
      std::shared_ptr<Name> name;
      bool writes = false;
    };
    std::vector<Use> uses;
    std::vector<std::shared_ptr<Call>> after;     ///< Those whose results it uses.
    std::vector<std::weak_ptr<Call>> later_than;  ///< Those that use what it writes as it was.
  };
  struct Entry {
    std::shared_ptr<Name> name;    ///< Never null.
    std::shared_ptr<Call> writer;  ///< The latest; null: the executor has the bytes.
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> seen;
    bool is_parameter = false;
  };

  Entry& entry_of(pipeline::StorageOrdinal storage);
  static std::vector<std::shared_ptr<Call>> waiting_users(const Name& name);
  void use(const std::shared_ptr<Call>& call, pipeline::StorageOrdinal storage, bool writes);
  void release(std::vector<std::shared_ptr<Call>> calls);
  void hand_on(Call& call);

  Executor& executor_;
  const Submit submit_;
  std::uint64_t added_ = 0;
  std::uint64_t waiting_ = 0;
  std::uint64_t own_ = pipeline::StorageOrdinal::kNone - 2;  ///< The next name of this rank alone.
  std::unordered_map<pipeline::StorageOrdinal, Entry> entries_;
};

}  // namespace spillway::split
