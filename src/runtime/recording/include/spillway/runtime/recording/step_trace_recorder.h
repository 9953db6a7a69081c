#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "spillway/base/clock.h"
#include "spillway/device/event.h"
#include "spillway/profile/chrome_trace.h"
#include "spillway/profile/step_profile.h"
#include "spillway/profile/tape_recorder.h"
#include "spillway/runtime/recording/stall_ledger.h"
#include "spillway/runtime/recording/storage_pieces.h"
#include "spillway/swap/transfer_observer.h"

namespace spillway::runtime {

class OpText;

/// A storage is born while a step runs. Numbers count births up; 0: none.
struct StorageBirth {
  /// Made by another thread, or by what runs again.
  static constexpr profile::OpIndex kOfNoOp = profile::kCarriedIn - 1;

  std::uint32_t slot = 0;
  profile::OpIndex op = profile::kCarriedIn;  ///< In or after it; kCarriedIn: before the first one.
  std::uint64_t number = 0;
  std::uint64_t before = 0;  ///< The storage that had the slot until then.
};

/// The steps that a recorder has kept, ready to be written.
struct RecordedTrace {
  profile::StepTrace trace;
  TimePoint begin, end;  ///< Its time 0, and where it ends, by the clock of the recorder.
  bool has_whole_step = false;
  std::string
      summary;  ///< "3 steps, 1200 operators, 40 of them recomputed, 2.0 GiB out, 2.0 GiB in"
};

/// Keeps the latest whole steps of the thread that trains, as they went: its operators and waits,
/// all transfers, resident bytes. Memory is bounded. The thread that trains is the first one, until
/// another one begins a step; what others do is counted only. Any thread may call; the moments are
/// those of the calls, by the clock.
///
/// The I/O thread waits for its mutex, so nothing is asked of the trainer's objects under it.
class StepTraceRecorder final : public swap::TransferObserver, public swap::DiskObserver {
 public:
  struct Options {
    std::uint32_t steps = 3;              ///< So many are kept.
    std::size_t most_events = 1'000'000;  ///< Of each kind; beyond that the oldest are forgotten.
    /// Of a device that works behind the host's back, see RuntimeOptions: its operators are shown
    /// as they were launched, and as the device says that it ran them. Nobody waits for a moment.
    std::function<device::Event()> moment = {};
    /// Tells apart the streams that threads give work to; empty: there is one.
    std::function<std::uint64_t()> stream = {};
    bool has_far_tier = false;  ///< Disks behind host memory: shows their lanes.
  };
  /// What tells threads apart.
  using Thread = const void*;

  /// `clock` outlives the recorder.
  StepTraceRecorder(const Options& options, const Clock& clock);

  /// An operator of the trainer begins. Asks for its text once per signature.
  void begin_op(Thread thread, std::uint64_t signature, const OpText& text);
  /// An operator runs again that `kept_op` was told of.
  void begin_replay(Thread thread, profile::OpIndex place);
  /// What has begun ends. `is_planned`: it is one of those that plans count. `resident` are tensor
  /// bytes in memory now.
  void end_op(Thread thread, bool is_planned, Bytes resident);
  /// The operator that has begun has its memory: its kernels come next.
  void begun(Thread thread);
  /// The thread has stood still for that time until now, within an operator or before it. `from`:
  /// what `moment` gave when that began.
  void waited(Thread thread, StallLedger::Reason reason, Duration time,
              const std::optional<device::Event>& from = {});
  /// What the device comes to now; none on the host. No lock.
  std::optional<device::Event> moment() const;
  /// The running operator is kept at that place of the step, to run again.
  void kept_op(Thread thread, profile::OpIndex place);
  /// A storage is born, in the running operator if there is one.
  void allocated(Thread thread, StorageId storage, Bytes size);
  /// Step `number` begins on this thread.
  void begin_step(Thread thread, std::uint64_t number);
  /// What was recorded of the step that ended last, by pieces: its values
  /// give the storages their names, which are those of a profile and its plans.
  /// `storage_of` says which storage a piece is all of; none: it is a part of one.
  void note_values(const profile::RecordedStep& step,
                   const std::function<StorageId(PieceId)>& storage_of);

  void begin_transfer(const swap::Transfer& transfer, StorageId storage, bool is_awaited,
                      TimePoint at) override;
  void end_transfers(std::span<const swap::TransferResult> results, TimePoint at,
                     Bytes resident) override;
  void begin_disk_transfer(const swap::Transfer& transfer) override;
  void end_disk_transfer(const swap::TransferResult& result) override;

  /// The latest whole steps that are still there from their begin; where no step was seen to end,
  /// all that is there. Time 0 is the begin of the first of them. Spans of a lane do not overlap:
  /// of transfers that go on at once each is shown from the end of the one before.
  RecordedTrace trace(const std::string& program);

  /// Asks the device for the times of what it has done so far, while it can still be asked.
  void settle();

 private:
  enum class What : std::uint8_t { kOp, kReplay, kWaitForInputs, kWaitForRoom };
  static constexpr std::uint32_t kNoNumber = static_cast<std::uint32_t>(-1);

  /// A time of the device, from some moment of it on.
  struct DeviceSpan {
    Duration begin, end;
  };
  /// Pieces of one operator have the same sequence number.
  struct Span {
    TimePoint begin, end;                      ///< By the clock of the host.
    device::Event from = {}, to = {};          ///< The same on a device, until they are done.
    std::optional<DeviceSpan> on_device = {};  ///< And then.
    std::uint32_t stream = 0;                  ///< Of the device: counts them up.
    const profile::OpKind* kind = nullptr;
    std::uint64_t sequence = 0;
    std::uint32_t number = kNoNumber;  ///< In the step, as plans count.
    What what = What::kOp;
    bool goes_on = false;  ///< After a wait.
  };
  struct Running {
    bool is_open = false;
    What what = What::kOp;
    TimePoint since;  ///< Begin of its latest piece.
    bool goes_on = false;
    const profile::OpKind* kind = nullptr;
    std::uint32_t number = kNoNumber;
    device::Event from = {};  ///< The same moment of the device.
    std::uint32_t stream = 0;
  };
  struct Storage {
    std::uint64_t number = 0;  ///< Counts up with each birth; 0: born unseen.
    Bytes size;
    const profile::OpKind* made_by = nullptr;
  };
  /// Of one storage, without a pause.
  struct Move {
    TimePoint begin, end;
    Storage storage;
    Bytes bytes;
    bool is_awaited = false;
    int error = 0;
  };
  struct Flight {
    std::uint64_t tag = 0;
    Storage storage;
    bool is_awaited = false;
  };
  struct Lane {
    std::deque<Move> moves;
    std::vector<Flight> flights;
    TimePoint since{};  ///< What ends next has had the lane since then.
  };
  struct Count {
    TimePoint end;  ///< Of the event after which it was counted.
    Bytes resident;
  };
  struct Step {
    TimePoint begin;
    std::uint64_t number = 0;
    std::uint32_t planned_ops = 0;
    std::vector<StorageBirth> births;
    std::unique_ptr<profile::RecordedStep> values;  ///< Null: not told.
  };
  class Writer;

  std::vector<const Step*> shown_locked() const;
  const profile::OpKind* kind_of(std::uint64_t signature, const OpText& text);
  bool begins_locked(Thread thread);
  StorageBirth birth_locked(Thread thread, StorageId storage) const;
  void close_piece_locked(TimePoint end, const device::Event& to);
  std::uint32_t stream_locked();
  void settle_moments_locked();
  std::optional<DeviceSpan> on_device_locked(const Span& span);
  void count_locked(TimePoint at, Bytes resident);
  static constexpr std::size_t kFar = 2;  ///< Behind the two lanes of the first store.
  Lane& lane_of(swap::Direction direction, std::size_t first = 0) {
    return lanes_.at(first + static_cast<std::size_t>(direction));
  }
  void end_in_lane_locked(Lane& lane, swap::Direction direction,
                          std::span<const swap::TransferResult> results, TimePoint at);
  static Flight take_flight(Lane& lane, std::uint64_t tag);
  void add_move_locked(Lane& lane, Move move);
  template <typename Event>
  void push_locked(std::deque<Event>& events, Event event);
  template <typename Event>
  static void forget(std::deque<Event>& events, TimePoint before);

  const Options options_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  Thread thread_ = nullptr;
  Running running_;
  std::uint64_t sequence_ = 0;
  std::uint32_t planned_ops_ = 0;  ///< In the step that runs.
  std::uint64_t other_ops_ = 0;    ///< Of other threads.
  std::uint64_t births_ = 0;
  std::unordered_map<std::uint64_t, profile::OpKind> kinds_;
  std::unordered_map<profile::OpIndex, const profile::OpKind*> kept_;
  std::vector<Storage> storages_;  ///< By slot.
  std::deque<Step> steps_;         ///< Those that are kept, and the one that runs.
  std::deque<Span> spans_;
  std::size_t unsettled_ = 0;               ///< The last ones, whose moments were not done yet.
  device::Event base_;                      ///< Times of the device count from here on,
  Duration base_at_{0};                     ///< which is this one.
  std::vector<std::uint64_t> streams_;      ///< By their number.
  std::array<Lane, 4> lanes_;               ///< Writes, reads, the same of disks behind them.
  std::vector<Storage> storage_of_extent_;  ///< That was written there last.
  std::deque<Count> counts_;
  TimePoint forgotten_until_ = TimePoint::min();  ///< Events before that may be missing.
};

}  // namespace spillway::runtime
