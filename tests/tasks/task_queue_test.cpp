#include "spillway/pipeline/tasks/task_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace spillway::pipeline {
namespace {

constexpr StorageOrdinal kA{1}, kB{2}, kC{3};
constexpr std::uint64_t kWide = 100;

using Storages = std::vector<StorageOrdinal>;

class TaskQueueTest : public ::testing::Test {
 protected:
  TaskId add(const Storages& reads, const Storages& writes,
             std::optional<std::uint64_t> micro_batch = std::nullopt, std::uint64_t order = 0,
             Task::Kind kind = Task::Kind::kCompute) {
    return queue_->add({.kind = kind,
                        .reads = reads,
                        .writes = writes,
                        .micro_batch = micro_batch,
                        .order = order});
  }
  TaskId send_awaited(StorageOrdinal storage) {
    return queue_->add({.kind = Task::Kind::kTransfer, .reads = {&storage, 1}, .is_awaited = true});
  }
  void limit_window(std::uint64_t window) { queue_.emplace(window); }
  /// Takes the next and ends it; none: nothing can run.
  TaskId step() {
    const std::optional<TaskId> task = queue_->next();
    if (!task) return {};
    queue_->done(*task);
    return *task;
  }

  std::optional<TaskQueue> queue_{kWide};
};

TEST_F(TaskQueueTest, RunsAReaderAfterTheWriterBeforeIt) {
  const TaskId writer = add({}, {kA});
  const TaskId reader = add({kA}, {kB});
  EXPECT_EQ(queue_->next(), writer);
  EXPECT_EQ(queue_->next(), std::nullopt);
  queue_->done(writer);
  EXPECT_EQ(queue_->next(), reader);
}

TEST_F(TaskQueueTest, RunsAWriterAfterTheReadersBeforeIt) {
  add({}, {kA});
  step();
  const TaskId first = add({kA}, {});
  const TaskId second = add({kA}, {});
  const TaskId writer = add({}, {kA});
  EXPECT_EQ(queue_->next(), first);
  EXPECT_EQ(queue_->next(), second);
  queue_->done(second);
  EXPECT_EQ(queue_->next(), std::nullopt);
  queue_->done(first);
  EXPECT_EQ(queue_->next(), writer);
}

TEST_F(TaskQueueTest, RunsWritersOfOneStorageInTheirOrder) {
  const TaskId first = add({}, {kA});
  add({}, {kA}, std::nullopt, 0, Task::Kind::kTransfer);
  EXPECT_EQ(queue_->next(), first);
  EXPECT_EQ(queue_->next(), std::nullopt);
}

TEST_F(TaskQueueTest, TakesATaskThatReadsWhatItWrites) {
  EXPECT_TRUE(add({kA}, {kA}).is_some());
  EXPECT_TRUE(step().is_some());
  EXPECT_FALSE(queue_->is_in_use(kA));
}

TEST_F(TaskQueueTest, TakesLowerOrdersFirstAndThenOlderOnes) {
  const TaskId late = add({}, {kA}, std::nullopt, 7);
  const TaskId older = add({}, {kB}, std::nullopt, 3);
  const TaskId younger = add({}, {kC}, std::nullopt, 3);
  EXPECT_EQ(step(), older);
  EXPECT_EQ(step(), younger);
  EXPECT_EQ(step(), late);
}

TEST_F(TaskQueueTest, BeginsTransfersBeforeItComputes) {
  const TaskId compute = add({}, {kA});
  const TaskId transfer = add({}, {kB}, std::nullopt, 9, Task::Kind::kTransfer);
  EXPECT_EQ(step(), transfer);
  EXPECT_EQ(step(), compute);
}

TEST_F(TaskQueueTest, HoldsBackMicroBatchesBeyondTheWindow) {
  limit_window(2);
  std::vector<TaskId> tasks;
  for (std::uint64_t i = 0; i < 3; ++i) tasks.push_back(add({}, {StorageOrdinal(i)}, i));
  EXPECT_EQ(queue_->next(), tasks[0]);
  EXPECT_EQ(queue_->next(), tasks[1]);
  EXPECT_EQ(queue_->next(), std::nullopt);
  queue_->done(tasks[1]);
  EXPECT_EQ(queue_->next(), std::nullopt);  // The oldest has not ended.
  queue_->done(tasks[0]);
  EXPECT_EQ(queue_->next(), tasks[2]);
}

TEST_F(TaskQueueTest, LetsWhatBelongsToNoMicroBatchPassTheWindow) {
  limit_window(1);
  add({}, {kA}, 0);
  queue_->next();
  add({}, {kB}, 1);
  const TaskId update = add({}, {kC});
  EXPECT_EQ(queue_->next(), update);
  EXPECT_EQ(queue_->next(), std::nullopt);
}

TEST_F(TaskQueueTest, LetsAllBeginOnceItsWindowIsLifted) {
  limit_window(1);
  const TaskId oldest = add({}, {kA}, 0);
  EXPECT_EQ(queue_->next(), oldest);
  const TaskId waiting = add({}, {kB}, 3);
  EXPECT_EQ(queue_->next(), std::nullopt);
  queue_->lift_window();
  const TaskId later = add({}, {kC}, 7);
  EXPECT_EQ(queue_->next(), waiting);
  EXPECT_EQ(queue_->next(), later);
  EXPECT_EQ(queue_->oldest_micro_batch(), 0u);
}

TEST_F(TaskQueueTest, PutsFirstWhatTheProgramWaitsForWithAllThatItNeeds) {
  add({}, {kC}, 0);
  const TaskId source = add({}, {kA}, 1);
  const TaskId wanted = add({kA}, {kB}, 1);
  queue_->demand(kB);
  EXPECT_EQ(step(), source);
  EXPECT_EQ(step(), wanted);
}

TEST_F(TaskQueueTest, KeepsItsWindowWhateverTheProgramWaitsFor) {
  limit_window(1);
  const TaskId oldest = add({}, {kC}, 0);
  const TaskId wanted = add({}, {kB}, 1);
  queue_->demand(kB);
  EXPECT_EQ(step(), oldest);
  EXPECT_EQ(step(), wanted);
}

TEST_F(TaskQueueTest, PutsBeforeOthersWhatAnotherRankWaitsFor) {
  add({}, {kC}, 0);
  const TaskId source = add({}, {kA}, 0);
  const TaskId sent = send_awaited(kA);
  EXPECT_EQ(step(), source);
  EXPECT_EQ(step(), sent);
}

TEST_F(TaskQueueTest, LeavesWhereItIsWhatOnlyAnUpdateThatAnotherRankWaitsForNeeds) {
  const TaskId of_weight = add({}, {kA}, 0);
  const TaskId of_input = add({}, {kB}, 0);
  const TaskId update = add({kA}, {kC});
  const TaskId of_update = send_awaited(kC);
  const TaskId of_gradient = send_awaited(kB);
  for (const TaskId task : {of_input, of_gradient, of_weight, update, of_update})
    EXPECT_EQ(step(), task);
}

TEST_F(TaskQueueTest, GoesOnWithTheSegmentThatItHasBegun) {
  const auto add_to = [&](std::uint64_t segment, StorageOrdinal from, StorageOrdinal to) {
    return queue_->add({.reads = {&from, 1}, .writes = {&to, 1}, .segment = segment});
  };
  const TaskId first = add_to(1, kA, kB);
  const TaskId other = add_to(2, StorageOrdinal(77), StorageOrdinal(78));
  const TaskId second = add_to(1, kB, kC);
  EXPECT_EQ(step(), first);
  EXPECT_EQ(step(), second);
  EXPECT_EQ(step(), other);
}

class ListedTasks : public TaskQueueTest {
 protected:
  /// Forward of two micro-batches, then their backward.
  void begin() {
    const std::vector<ListedAction> list{{1, 0}, {2, 2}, {3, 1}, {4, 3}};
    queue_->begin_list(list, kWide);
  }
  TaskId add_listed(std::uint64_t order, std::uint64_t phase, StorageOrdinal from,
                    StorageOrdinal to) {
    queue_->come_to_phase(phase);
    return add({from}, {to}, std::nullopt, order);
  }
  static StorageOrdinal any() {
    static std::uint64_t number = 1000;
    return StorageOrdinal(number++);
  }
};

TEST_F(ListedTasks, WaitForWhatTheListHasBefore) {
  begin();
  const TaskId input = add({}, {kA}, std::nullopt, 0, Task::Kind::kTransfer);
  ASSERT_EQ(queue_->next(), input);
  const TaskId first = add_listed(1, 0, any(), any());
  const TaskId last = add_listed(3, 1, any(), any());
  const TaskId second = add_listed(2, 2, kA, any());
  queue_->come_to_phase(3);
  EXPECT_EQ(step(), first);
  EXPECT_EQ(queue_->next(), std::nullopt);  // The second one waits for its input.
  EXPECT_TRUE(queue_->holds_back());
  queue_->done(input);
  EXPECT_EQ(step(), second);
  EXPECT_EQ(step(), last);
  EXPECT_FALSE(queue_->holds_back());
}

TEST_F(ListedTasks, DoNotWaitForTheProgram) {
  begin();
  const TaskId first = add_listed(1, 0, any(), any());
  const TaskId third = add_listed(3, 1, any(), any());
  EXPECT_EQ(step(), first);
  EXPECT_EQ(step(), third);  // The program has not asked for the second one.
}

TEST_F(ListedTasks, LetWhatIsOfNoActionPass) {
  begin();
  const TaskId input = add({}, {kA}, std::nullopt, 0, Task::Kind::kTransfer);
  EXPECT_EQ(queue_->next(), input);
  add_listed(1, 0, kA, any());
  add_listed(3, 1, any(), any());
  const TaskId sum = add({}, {any()});
  EXPECT_EQ(step(), sum);
  EXPECT_EQ(step(), TaskId());
}

TEST_F(ListedTasks, GoOnWithoutThoseThatDoNotCome) {
  begin();
  add_listed(1, 0, any(), any());
  add_listed(3, 1, any(), any());
  const TaskId last = add_listed(4, 3, any(), any());
  queue_->end_list();
  step();
  step();
  EXPECT_EQ(step(), last);
}

TEST_F(ListedTasks, FollowEachOtherThroughLists) {
  begin();
  const TaskId input = add({}, {kA}, std::nullopt, 0, Task::Kind::kTransfer);
  EXPECT_EQ(queue_->next(), input);
  const TaskId late = add_listed(1, 0, kA, any());
  const std::vector<ListedAction> list{{7, 4}, {8, 5}};
  queue_->begin_list(list, kWide);
  const TaskId next = add_listed(7, 4, any(), any());
  EXPECT_EQ(step(), TaskId());
  queue_->done(input);
  EXPECT_EQ(step(), late);
  EXPECT_EQ(step(), next);
}

TEST_F(ListedTasks, KeepTheirWindowWhenTheNextListHasASmallerOne) {
  const auto add_to = [&](std::uint64_t micro_batch, std::uint64_t order) {
    return add({}, {any()}, micro_batch, order);
  };
  queue_->begin_list(std::vector<ListedAction>{{1, 0}, {2, 2}, {3, 1}, {4, 3}}, 2);
  const TaskId first = add_to(0, 1), third = add_to(0, 3);
  const TaskId second = add_to(1, 2), fourth = add_to(1, 4);
  queue_->begin_list(std::vector<ListedAction>{{7, 4}, {8, 6}}, 1);
  const TaskId next = add_to(2, 7), after_next = add_to(3, 8);
  queue_->end_list();
  for (const TaskId task : {first, second, third, fourth, next, after_next})
    EXPECT_EQ(step(), task);
}

TEST_F(ListedTasks, PutFirstWhatTheProgramWaitsForBeforeItGoesOn) {
  begin();
  const TaskId input = add({}, {kA}, std::nullopt, 0, Task::Kind::kTransfer);
  EXPECT_EQ(queue_->next(), input);
  add_listed(1, 0, kA, any());
  const TaskId wanted = add_listed(3, 1, any(), kB);
  queue_->demand(kB);
  EXPECT_EQ(step(), wanted);
}

TEST_F(ListedTasks, KeepToTheListWhereTheProgramHasAskedForAll) {
  begin();
  const TaskId input = add({}, {kA}, std::nullopt, 0, Task::Kind::kTransfer);
  EXPECT_EQ(queue_->next(), input);
  const TaskId first = add_listed(1, 0, kA, any());
  const TaskId wanted = add_listed(3, 1, any(), kB);
  queue_->end_list();
  queue_->demand(kB);
  EXPECT_EQ(step(), TaskId());
  queue_->done(input);
  EXPECT_EQ(step(), first);
  EXPECT_EQ(step(), wanted);
}

TEST_F(ListedTasks, LeaveForLaterWhatNoOtherRankWaitsFor) {
  const std::vector<ListedAction> list{{1, 0}, {2, 2}, {3, 1}};
  queue_->begin_list(list, kWide);
  const auto add_backward = [&](StorageOrdinal to) {
    return queue_->add({.writes = {&to, 1}, .micro_batch = 0, .order = 1, .order_of_rest = 3});
  };
  const TaskId of_weight = add_backward(kA);
  const TaskId of_input = add_backward(kB);
  send_awaited(kB);
  const TaskId other = add_listed(2, 2, any(), any());
  queue_->end_list();
  EXPECT_EQ(step(), of_input);
  EXPECT_TRUE(step().is_some());  // It is sent.
  EXPECT_EQ(step(), other);
  EXPECT_EQ(step(), of_weight);
}

TEST_F(ListedTasks, RunWhenTheyCanOnceTheListIsGivenUp) {
  begin();
  const TaskId input = add({}, {kA}, std::nullopt, 0, Task::Kind::kTransfer);
  EXPECT_EQ(queue_->next(), input);
  add_listed(1, 0, kA, any());
  const TaskId last = add_listed(4, 3, any(), any());
  EXPECT_EQ(step(), TaskId());
  queue_->give_up_list();
  EXPECT_EQ(step(), last);
}

TEST_F(TaskQueueTest, SaysWhatIsPromisedAndInUse) {
  EXPECT_FALSE(queue_->is_promised(kA));
  add({}, {kA});
  add({kA}, {});
  EXPECT_TRUE(queue_->is_promised(kA));
  step();
  EXPECT_FALSE(queue_->is_promised(kA));
  EXPECT_TRUE(queue_->is_in_use(kA));
  step();
  EXPECT_FALSE(queue_->is_in_use(kA));
  EXPECT_EQ(queue_->size(), 0u);
}

/// Tasks over few storages, several under way at a time, against the same one after the other.
TEST_F(TaskQueueTest, GivesTheResultsOfTheProgramsOrderForRandomTasks) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 draws(seed);
    limit_window(1 + draws() % 3);
    constexpr std::uint64_t kStorages = 6;
    std::vector<std::uint64_t> in_order(kStorages), queued(kStorages);
    std::vector<std::function<void(std::vector<std::uint64_t>&)>> jobs;
    std::vector<TaskId> under_way;
    const auto take_some = [&] {
      while (draws() % 3 != 0) {
        if (draws() % 2 == 0) {
          if (const auto task = queue_->next()) under_way.push_back(*task);
        } else if (!under_way.empty()) {
          const std::size_t at = draws() % under_way.size();
          jobs[under_way[at].value()](queued);
          queue_->done(under_way[at]);
          under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(at));
        }
      }
    };
    for (std::uint64_t i = 0; i < 60; ++i) {
      const std::uint64_t from = draws() % kStorages, to = draws() % kStorages;
      jobs.emplace_back([=](std::vector<std::uint64_t>& bytes) {
        bytes[to] = bytes[to] * 31 + bytes[from] * 17 + i;
      });
      jobs.back()(in_order);
      add({StorageOrdinal(from), StorageOrdinal(to)}, {StorageOrdinal(to)}, i / 10, draws() % 4,
          draws() % 4 == 0 ? Task::Kind::kTransfer : Task::Kind::kCompute);
      if (draws() % 8 == 0) queue_->demand(StorageOrdinal(draws() % kStorages));
      take_some();
    }
    for (int i = 0; queue_->size() > 0; ++i) {
      ASSERT_LT(i, 10000) << "seed " << seed << ": nothing runs any more";
      take_some();
    }
    ASSERT_EQ(queued, in_order) << "seed " << seed;
  }
}

}  // namespace
}  // namespace spillway::pipeline
