#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "spillway/base/error.h"
#include "store/retrying/factory.h"
#include "support/golden_part.h"
#include "support/manual_clock.h"
#include "support/page_patterns.h"

namespace spillway::swap {
namespace {

using namespace std::chrono_literals;

/// Answers every transfer with the next error of a list, then with success.
class ScriptedStore final : public SpillStore {
 public:
  explicit ScriptedStore(std::deque<int> errors)
      : SpillStore({.queue_depth = 4}), errors_(std::move(errors)) {}
  std::size_t submissions() const { return submissions_; }

 private:
  std::optional<ExtentId> do_reserve_extent(StoreTier) override { return ExtentId(next_++); }
  void do_release_extent(ExtentId) override {}
  void do_submit(const Transfer& transfer) override {
    ++submissions_;
    const int error = errors_.empty() ? 0 : errors_.front();
    if (!errors_.empty()) errors_.pop_front();
    finished_.push_back({transfer, error, error == 0 ? "" : "writing extent 0 of /disk: broken"});
  }
  void do_reap(std::vector<TransferResult>& results, std::chrono::milliseconds) override {
    results.insert(results.end(), finished_.begin(), finished_.end());
    finished_.clear();
  }
  void do_wake() override {}
  ExtentPlace do_locate(ExtentId) const override { return {}; }
  StoreReport do_report() const override { return tally(); }

  std::deque<int> errors_;
  std::vector<TransferResult> finished_;
  std::size_t submissions_ = 0;
  std::uint32_t next_ = 0;
};

class RetryingStoreTest : public testing::Test {
 protected:
  void open(std::deque<int> errors) {
    auto scripted = std::make_unique<ScriptedStore>(std::move(errors));
    child_ = scripted.get();
    store_ = make_retrying_store(std::move(scripted), std::make_shared<Notifier>(), clock_,
                                 {.attempts_max = 4, .first_pause = 10ms});
  }
  void submit(std::uint64_t tag, Direction direction = Direction::kWrite) {
    store_->submit({direction, ExtentId(0), pages_[0], kExtentBytes, tag});
  }
  std::vector<TransferResult> look() {
    std::vector<TransferResult> results;
    store_->reap(results, 0ms);
    return results;
  }

  ManualClock clock_;
  PatternPages pages_{1};
  ScriptedStore* child_ = nullptr;
  std::unique_ptr<SpillStore> store_;
};

TEST_F(RetryingStoreTest, TriesAgainAfterAPauseThatDoubles) {
  open({EIO, EAGAIN, ENOMEM});
  submit(77);
  EXPECT_TRUE(look().empty());
  for (const auto pause : {10ms, 20ms, 40ms}) {
    const std::size_t before = child_->submissions();
    clock_.advance(pause - 1ms);
    EXPECT_TRUE(look().empty());
    EXPECT_EQ(child_->submissions(), before) << "too early";
    clock_.advance(1ms);
    const auto results = look();
    EXPECT_EQ(child_->submissions(), before + 1);
    if (pause != 40ms) {
      EXPECT_TRUE(results.empty());
      continue;
    }
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].error, 0);
    EXPECT_EQ(results[0].transfer.tag, 77U);
  }
  EXPECT_EQ(store_->report().retries, 3U);
  EXPECT_TRUE(store_->reserve_extent()) << "a fault that passed is no reason to refuse";
}

TEST_F(RetryingStoreTest, GivesUpInTheEndAndTakesNoMore) {
  open({EIO, EIO, EIO, EIO, EIO});
  submit(5);
  std::vector<TransferResult> results;
  for (int i = 0; i < 10 && results.empty(); ++i) {
    results = look();
    clock_.advance(1s);
  }
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].error, EIO);
  EXPECT_EQ(results[0].transfer.tag, 5U);
  EXPECT_EQ(results[0].detail, "writing extent 0 of /disk: broken (4 attempts)");
  EXPECT_EQ(child_->submissions(), 4U);
  EXPECT_FALSE(store_->reserve_extent());
  GoldenPart().add(store_->report().refusal);
}

TEST_F(RetryingStoreTest, ReadsGoOnAfterItGaveUp) {
  open({EROFS});
  submit(1);
  ASSERT_EQ(look().size(), 1U);
  EXPECT_FALSE(store_->reserve_extent());
  submit(2, Direction::kRead);
  const auto results = look();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].error, 0);
}

TEST_F(RetryingStoreTest, DoesNotRepeatWhatCannotPass) {
  open({ENOSPC});
  submit(1);
  const auto results = look();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].error, ENOSPC);
  EXPECT_EQ(child_->submissions(), 1U);
  GoldenPart().add(store_->report().refusal);
}

TEST_F(RetryingStoreTest, KeepsTheOrderOfTransfersThatDoNotFail) {
  open({EIO});
  submit(1);
  submit(2);
  submit(3);
  const auto results = look();
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].transfer.tag, 2U);
  EXPECT_EQ(results[1].transfer.tag, 3U);
  clock_.advance(10ms);
  EXPECT_EQ(look().size(), 1U);
}

TEST_F(RetryingStoreTest, AWaitingReapCarriesTheRetryOutByItself) {
  const SteadyClock steady;
  auto store = make_retrying_store(std::make_unique<ScriptedStore>(std::deque<int>{EIO, EIO}),
                                   std::make_shared<Notifier>(), steady,
                                   {.attempts_max = 3, .first_pause = 1ms});
  store->submit({Direction::kWrite, ExtentId(0), pages_[0], kExtentBytes, 1});
  std::vector<TransferResult> results;
  store->reap(results, std::chrono::hours(1));
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].error, 0);
}

}  // namespace
}  // namespace spillway::swap
