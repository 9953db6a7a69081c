#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "random_trainer.h"
#include "spillway/pipeline/tasks/action_order.h"
#include "spillway/pipeline/tasks/task_queue.h"
#include "spillway/transport/in_process.h"

namespace spillway::pipeline {

/// The memory of a rank whose operators wait in a queue, from which another thread of the rank
/// takes them. Bytes are numbers, as those of RankMemory.
class QueuedMemory final : public Memory {
 public:
  using Contents = RankMemory::Contents;

  QueuedMemory(transport::InProcessRanks& ranks, transport::Transport& transport,
               Ownership& ownership, std::uint64_t window);
  /// Ends the other thread, whether `finish` was reached or not.
  ~QueuedMemory() override;

  /// Keeps to the list of this rank from the start, for the only step. `order` outlives it.
  void follow(const ActionOrder& order);
  /// What has taken time, in the order in which it began: the order of its action.
  const std::vector<std::uint64_t>& followed() const { return followed_; }

  std::vector<StorageOrdinal> run(const OperatorCall& call, std::size_t results) override {
    return run_for(Duration(0), call, results);
  }
  /// One that takes so much time on its owner.
  std::vector<StorageOrdinal> run_for(Duration time, const OperatorCall& call, std::size_t results);
  std::uint64_t ask(StorageOrdinal of) override;
  void end(StorageOrdinal storage) override;

  /// Waits for all operators so far; what this rank holds then, and none for what others hold.
  Contents drain();
  /// The same, and ends the other thread.
  void finish();
  /// Micro-batches that this rank had begun and not ended, at most, counted by work that takes
  /// time.
  std::size_t most_begun() const { return most_begun_; }

 private:
  struct Job {
    std::function<void()> compute{};  ///< Of what is computed.
    Duration time{0};
    std::optional<std::uint64_t> micro_batch{};
    std::function<device::Event()> begin{};  ///< Of what is sent or received.
    std::function<void()> end{};
  };
  struct UnderWay {
    TaskId task;
    device::Event event;
  };

  ActionOrder::Place come_to(const OperatorCall& call, const Decision& decision);
  void add_move(const Move& move, std::optional<std::uint64_t> micro_batch);
  void wait_until(const std::function<bool()>& is_over);
  void work_off();
  bool end_transfers();
  void finish_task(TaskId task);
  void compute(TaskId task, Job& job);
  std::uint64_t bytes_of(StorageOrdinal storage) const {
    return RankMemory::bytes_in(contents_, storage);
  }

  transport::InProcessRanks& ranks_;
  transport::Transport& transport_;
  Ownership& ownership_;
  TaskQueue queue_;
  const ActionOrder* order_ = nullptr;
  std::vector<std::uint64_t> followed_;
  std::unordered_map<TaskId, Job> jobs_;
  std::vector<UnderWay> under_way_;
  Contents contents_;
  std::set<std::uint64_t> ended_;
  std::unique_ptr<transport::Notifier> more_work_;
  std::unique_ptr<transport::Notifier> progress_;
  bool is_finished_ = false;
  bool has_worker_ = true;
  std::map<std::uint64_t, std::uint64_t> timed_left_;  ///< Tasks that take time, by micro-batch.
  std::set<std::uint64_t> begun_;
  std::size_t most_begun_ = 0;
  std::uint64_t operators_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace spillway::pipeline
