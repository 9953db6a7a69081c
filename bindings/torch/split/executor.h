#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "archive_file.h"
#include "device_bytes.h"
#include "device_messages.h"
#include "device_transfer.h"
#include "effort.h"
#include "latest_work.h"
#include "occupation.h"
#include "rank_log.h"
#include "shard_exchange.h"
#include "spillway/base/clock.h"
#include "spillway/phantoms/plain_tensor.h"
#include "spillway/pipeline/agreement/job.h"
#include "spillway/pipeline/ownership/ownership.h"
#include "spillway/pipeline/tasks/action_order.h"
#include "spillway/pipeline/tasks/task_queue.h"
#include "spillway/recompute/surroundings.h"
#include "spillway/runtime/runtime.h"
#include "spillway/split/split_program.h"
#include "spillway/transport/transport.h"
#include "staged_bytes.h"
#include "unit_times.h"

namespace spillway::split {

/// A tensor among the arguments of a call that has not run yet. It refers to nothing of the
/// program's: autograd decides by reference counts whether to copy.
struct ArgumentTensor {
  std::uint32_t argument = 0;
  std::int32_t element = -1;  ///< Of the argument, where that is a list.
  pipeline::StorageOrdinal storage;
  c10::Storage copy;  ///< Of its bytes, where it has no ordinal.
  c10::Device device{c10::DeviceType::CPU};
  phantoms::PlainTensor tensor;
};

/// A storage that a call is to make.
struct PendingResult {
  std::size_t number = 0;  ///< Of the first tensor among the results that lies in it.
  pipeline::StorageOrdinal storage;
  Bytes size;
  c10::Device device{c10::DeviceType::CPU};
};

/// A call that this rank is to compute.
struct PendingCall {
  c10::OperatorHandle op;
  c10::DispatchKeySet below{};
  torch::jit::Stack arguments{};  ///< Without their tensors.
  std::vector<ArgumentTensor> tensors{};
  std::vector<PendingResult> results{};
  std::vector<PendingResult> blanks{};  ///< Storages that it begins anew.
  FileRange bytes{};  ///< With a file: all that its one blank gets, and the operator does not run.
  std::shared_ptr<const recompute::Surroundings> surroundings{};
  runtime::OpTraits traits{};
  std::optional<std::uint32_t> unit{};  ///< Whose time it takes; none: nobody's.
  ForAction action{};
};

/// Does what a program has asked of this rank, on a thread of its own, while the program goes on:
/// computes, sends and receives, in the order of a TaskQueue. Has the bytes of the storages that it
/// works on. What is computed on a GPU is done when the GPU has been told of it: all that comes
/// later there runs later. All methods are for the program's thread.
class Executor {
 public:
  /// `shards`: null where there is one. `log`: notes what it does, on its thread; null: nobody
  /// does.
  Executor(runtime::Runtime& runtime, transport::Transport& transport, pipeline::Job& job,
           Compute compute, std::uint64_t window, ShardExchange* shards, RankLog* log,
           const DeviceBytes& devices, DeviceMessages& between_devices);
  /// Ends the thread, when nothing is left to do.
  ~Executor();
  void stop();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  using MicroBatch = std::optional<std::uint64_t>;
  using Place = pipeline::ActionOrder::Place;
  /// `segment`, `place`: see pipeline::Task.
  void add_call(PendingCall call, std::span<const pipeline::StorageOrdinal> reads,
                std::span<const pipeline::StorageOrdinal> writes, MicroBatch micro_batch,
                std::optional<std::uint64_t> segment, const Place& place);
  /// Of this rank: sent or received, `size` bytes of that device, for an operator of that action.
  /// With lists, where it stands in them, or behind what was asked for before.
  void add_move(const pipeline::Move& move, Bytes size, c10::Device device, MicroBatch micro_batch,
                const ForAction& action, std::uint64_t order);
  /// Its bytes are of no more use, once all that was asked for until now is done.
  void add_drop(pipeline::StorageOrdinal storage);
  /// On those storages, which it only reads or writes, too.
  void add_effort(std::unique_ptr<Effort> effort, std::span<const pipeline::StorageOrdinal> on,
                  bool writes);
  /// Runs when all that was asked for before is done, and before all that is asked for later.
  /// What the program asks for later is of step `step`, counted from 1.
  void add_barrier(std::uint64_t step, std::function<void()> work);
  /// Messages wake it by another notifier from now on. Waits until all that was asked for is done.
  void wake_by(std::shared_ptr<transport::Notifier> notifier);

  /// Gives it bytes that the program has.
  void hold(pipeline::StorageOrdinal storage, c10::Storage bytes);
  /// Whether it has, or will have, the bytes of a storage.
  bool has(pipeline::StorageOrdinal storage) const;
  /// Waits until the bytes are there as the program wants to see them, and, where it is to write
  /// them, until nobody needs them as they are. Returns them; none where it does not have them.
  /// `who` wants that, for the figures; its name stays.
  c10::Storage wait_for(pipeline::StorageOrdinal storage, bool writes, std::string_view who);
  /// Waits while more than so many tasks are left.
  void wait_until_left(std::size_t tasks);
  /// Waits while a task of an earlier micro-batch is left.
  void wait_until_begun(std::uint64_t micro_batch);
  // See TaskQueue.
  void lift_window();
  void begin_list(std::span<const pipeline::ListedAction> list, std::uint64_t window);
  void come_to_phase(std::uint64_t phase);
  void end_list();
  void give_up_list();
  /// Whether it has found by itself that what the list has next does not come.
  bool has_given_up_list() const { return has_given_up_list_; }

  /// Adds where its time went.
  void write(runtime::RankFigures& figures) const;
  /// What its calls have taken.
  UnitTimes& unit_times() { return unit_times_; }

 private:
  struct Work {
    std::function<void()> compute{};       ///< Of what is computed.
    std::optional<pipeline::Move> move{};  ///< Of what is sent or received.
    Bytes size{};
    c10::Device device{c10::DeviceType::CPU};  ///< Of what is sent or received.
    std::string_view name{};                   ///< Of what is computed.
    bool is_between_devices = false;           ///< It goes by DeviceMessages,
    Bytes room{};                              ///< in pieces that take so much; 0: as it is.
    ForAction action{};
    std::uint64_t order = 0;  ///< Of what is sent or received.
    pipeline::StorageOrdinal dropped{};
    std::unique_ptr<Effort> effort{};
    std::vector<pipeline::StorageOrdinal> on{};  ///< Of the effort.
    bool writes = false;                         ///< The effort, all of these.
  };
  /// Messages lie in memory of their own: pages that wait for another rank's thread would keep room
  /// from the operators that this one waits for, and networks must not see pages move. Those
  /// between devices lie in the storage itself, which has none, or in pieces.
  struct UnderWay {
    pipeline::TaskId task;  ///< Of what comes; what leaves is done when it is copied.
    pipeline::Move move;
    Bytes size;
    c10::Device device{c10::DeviceType::CPU};
    ForAction action;
    std::uint64_t order = 0;
    StagedBytes bytes;
    device::Event event;
    std::unique_ptr<DeviceMessages::Transfer> between{};  ///< In place of both, between devices.
    Bytes room{};                                         ///< As in Work.
    bool is_handed_on = false;  ///< Operators may be given what comes between devices.
  };

  /// Messages by their turns: begun ones leave others the room of a whole.
  using Postponed = std::pair<std::uint64_t, pipeline::TaskId>;

  pipeline::TaskId add(const pipeline::Task& task, Work work);
  bool is_over(const std::function<bool()>& is_over_locked) const;
  void wait_until(const std::function<bool()>& is_over_locked, const char* what);
  void work_off() noexcept;
  bool end_transfers();
  void begin_effort(pipeline::TaskId task, Work& work);
  bool advance_efforts();
  bool waits_for_shard() const;
  Rank rank_in_job(Rank shard, Rank rank) const;
  void notify_program();
  void have_job_described(bool is_running);
  std::vector<std::string> describe() const;
  LatestWork::Piece piece_of(const UnderWay& message) const;
  void run(pipeline::TaskId task);
  void wait_for_work();
  bool may_begin(const Postponed& message, const Work& work) const;
  void begin_postponed();
  void begin_move(pipeline::TaskId task, const Work& work);
  void send(UnderWay& begun, bool is_between_devices);
  static std::optional<device::Outcome> end_of(UnderWay& message);
  void take(UnderWay& message);
  bool hand_on(UnderWay& message);
  void note(const UnderWay& message, TimePoint begin);
  void run_call(const PendingCall& call, std::span<const pipeline::StorageOrdinal> writes);
  void finish(pipeline::TaskId task, bool is_computed);
  c10::Storage held(pipeline::StorageOrdinal storage) const;
  c10::Storage held_to_write(pipeline::StorageOrdinal storage);
  void notify();

  runtime::Runtime& runtime_;
  transport::Transport& transport_;
  pipeline::Job& job_;
  const Compute compute_;
  ShardExchange* const shards_;
  const SteadyClock clock_;
  const DeviceBytes& devices_;
  DeviceMessages& between_devices_;
  RankLog* const log_;  ///< Of the executor's thread; null: no trace is wanted.
  UnitTimes unit_times_;

  mutable std::mutex mutex_;                        ///< Of all that follows.
  std::shared_ptr<transport::Notifier> more_work_;  ///< Its thread changes it.
  pipeline::TaskQueue queue_;
  Occupation occupation_;
  LatestWork latest_work_;
  std::unordered_map<pipeline::TaskId, Work> work_;
  std::unordered_map<pipeline::StorageOrdinal, c10::Storage> held_;
  Rank waits_for_;  ///< From whom the oldest message under way comes; none: there is none.
  bool is_ending_ = false;

  std::size_t messages_ = 0;  ///< Under way.

  std::atomic<bool> has_given_up_list_ = false;
  // Of the executor's thread.
  std::list<UnderWay> under_way_;
  std::map<Postponed, Work> postponed_;  ///< Messages without room.
  std::optional<TimePoint> held_since_;  ///< It does nothing: what could run is not next in a list.
  std::list<std::pair<pipeline::TaskId, std::unique_ptr<Effort>>> efforts_;
  std::thread thread_;
};

}  // namespace spillway::split
