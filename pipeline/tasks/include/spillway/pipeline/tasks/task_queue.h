#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "spillway/base/strong_id.h"
#include "spillway/pipeline/ownership/directory.h"

namespace spillway::pipeline {

/// A task of this rank, in the order of the program.
using TaskId = StrongId<struct TaskTag, std::uint64_t>;

/// What the program has asked for and nobody has done so far.
struct Task {
  enum class Kind : std::uint8_t {
    kCompute,   ///< Occupies the rank while it runs.
    kTransfer,  ///< Goes on beside others once it has begun.
  };
  Kind kind = Kind::kCompute;
  std::span<const StorageOrdinal> reads{};
  std::span<const StorageOrdinal> writes{};  ///< Made or changed; their old bytes are lost.
  /// Counted through the whole run; none: it takes no memory that its micro-batch's backward gives
  /// back, as sums of gradients, updates, copies of parameters, and all that is sent.
  std::optional<std::uint64_t> micro_batch{};
  std::uint64_t order = 0;  ///< Lower ones go first among those that can.
  /// In place of `order` as long as no other rank waits for it; 0: the same.
  std::uint64_t order_of_rest = 0;
  /// Tasks of one number are done together, if they can: those of a stage for a micro-batch, in one
  /// direction. Else a stage's last small operator, and what waits for it elsewhere, would wait for
  /// another micro-batch's large ones.
  std::optional<std::uint64_t> segment{};
  /// Forward or backward of another rank waits for it, and so for what it needs of forward and
  /// backward here. Not so sums of gradients and what follows updates: they wait for all of a step.
  bool is_awaited = false;
};

/// What a rank's list of a schedule has next: tasks of that order. The program asks for all of them
/// until it comes to a later phase.
struct ListedAction {
  std::uint64_t order = 0;
  std::uint64_t phase = 0;
};

/// Which task is next: one whose inputs are there and whose results nobody needs as they were
/// before. Tasks that were added earlier never wait for later ones, so whoever runs what `next`
/// gives comes to an end. Pure; one thread, or with a lock of the caller.
class TaskQueue {
 public:
  /// `window`: micro-batches that this rank has begun and not ended, at most; at least 1. It bounds
  /// the memory of activations that wait for their backward. The oldest one never waits for others.
  explicit TaskQueue(std::uint64_t window);

  /// From now on all micro-batches may begin, those that have waited, too.
  void lift_window();

  // With a list, a task of an action waits until those before it in the list are done: all of them
  // that the program has asked for in full. What is of no action, with order 0, waits for none.
  // Lists are for programs in which no action hangs on one of another micro-batch.

  /// Orders rise, from one list to the next, too. The program has asked for all of the list before,
  /// which keeps its window until it is done.
  void begin_list(std::span<const ListedAction> list, std::uint64_t window);
  void come_to_phase(std::uint64_t phase);  ///< The program, for what it adds from here on.
  void end_list();                          ///< It has asked for all, which may be less.
  void give_up_list();                      ///< Nothing waits for a list any more.
  /// Whether `next` has found nothing because tasks that could run wait for their turn.
  bool holds_back() const { return holds_back_; }

  TaskId add(const Task& task);
  /// What `add` returns next.
  TaskId next_added() const { return TaskId(added_); }
  /// Takes a task to run. Transfers come before what is computed: they only have to be begun.
  std::optional<TaskId> next();
  /// What `next` gave has come to its end.
  void done(TaskId task);

  /// The program waits for the bytes of a storage: what makes them goes before all else that is
  /// computed. The window stays: a sum over a step's losses would else begin all its micro-batches.
  void demand(StorageOrdinal storage);
  /// Whether a task that is not done writes it.
  bool is_promised(StorageOrdinal storage) const;
  /// Whether a task that is not done reads or writes it: its memory has to stay.
  bool is_in_use(StorageOrdinal storage) const { return storages_.contains(storage); }

  /// Of the tasks that are not done.
  std::optional<std::uint64_t> oldest_micro_batch() const {
    if (left_.empty()) return std::nullopt;
    return left_.begin()->first;
  }

  /// Where a task that is not done stands at present.
  std::uint64_t order_of(TaskId task) const { return tasks_.at(task).order; }
  std::size_t size() const { return tasks_.size(); }

 private:
  struct Pending {
    Task::Kind kind = Task::Kind::kCompute;
    std::optional<std::uint64_t> micro_batch;
    std::optional<std::uint64_t> segment;
    std::uint64_t order = 0;
    std::uint64_t order_if_awaited = 0;
    bool is_urgent = false;
    bool is_awaited = false;
    bool is_taken = false;
    std::set<TaskId> waits_for;
    std::vector<TaskId> followers;
    std::vector<StorageOrdinal> storages;
  };
  struct Window {
    std::uint64_t last = 0;  ///< The highest order of its list.
    std::uint64_t micro_batches = 0;
  };
  /// Of tasks, less for those that are taken earlier.
  struct Key {
    bool is_computed = false;
    bool is_urgent = false;
    std::uint64_t order = 0;
    bool is_awaited = false;
    TaskId id;

    bool operator<(const Key& other) const { return place() < other.place(); }

   private:
    std::tuple<bool, bool, std::uint64_t, bool, TaskId> place() const {
      return {is_computed, !is_urgent, order, !is_awaited, id};
    }
  };
  struct InUse {
    std::optional<TaskId> writer;  ///< The last one, unless it is done.
    std::set<TaskId> readers;      ///< Since then.
  };

  static Key key_of(TaskId id, const Pending& task);
  void wait_for(TaskId id, Pending& task, TaskId earlier);
  void make_ready(TaskId id, const Pending& task);
  bool unmake_ready(TaskId id, const Pending& task);
  bool is_in_window(std::uint64_t micro_batch) const;
  void move_window();
  void drop_windows();
  void raise(TaskId id, bool Pending::*mark);
  void let_go(TaskId id, StorageOrdinal storage);
  void count(const Pending& task, bool comes);
  bool is_asked_for(const ListedAction& action) const;
  bool waits_for_turn(const Key& key) const;
  std::optional<Key> first_computed();

  std::deque<Window> windows_;  ///< Of lists that are not done, and the latest; empty: lifted.
  std::uint64_t added_ = 0;
  std::unordered_map<TaskId, Pending> tasks_;
  std::unordered_map<StorageOrdinal, InUse> storages_;
  std::map<std::uint64_t, std::uint64_t> left_;  ///< Tasks that are not done, by micro-batch.
  std::set<Key> ready_;
  std::unordered_map<std::uint64_t, std::set<Key>> ready_in_segment_;
  std::map<std::uint64_t, std::vector<TaskId>> outside_;  ///< Of the window, by micro-batch.
  std::optional<std::uint64_t> segment_;                  ///< Of the latest task.
  std::deque<ListedAction> list_;                         ///< What is not done of it.
  std::uint64_t phase_ = 0;
  std::uint64_t last_phase_ = 0;  ///< Of the list.
  bool is_list_ended_ = false;
  bool holds_back_ = false;
  std::unordered_map<std::uint64_t, std::uint64_t> left_of_action_;  ///< Tasks, by order.
};

}  // namespace spillway::pipeline
