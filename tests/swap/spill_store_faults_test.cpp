// Thousands of schedules of faults, each from a seed: no transfer is lost or reported twice, and no
// wrong byte is ever reported as right.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>

#include "store/striped/factory.h"
#include "support/fault_store.h"
#include "support/manual_clock.h"
#include "support/page_patterns.h"
#include "support/sanitized.h"

namespace spillway::swap {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPages = 8;
constexpr std::size_t kSize = 4 * kTransferAlignment;  // small: the faults matter, not the bytes

struct Tally {
  std::uint64_t good_reads = 0;
  std::uint64_t good_writes = 0;
  std::uint64_t errors = 0;
  std::uint64_t wrong_sums = 0;
  std::uint64_t retries = 0;
  std::uint64_t refusals = 0;
};

/// One run of random requests against a stack that fails by `seed`.
class Schedule {
 public:
  Schedule(std::uint64_t seed, PatternPages& pages, Tally& tally)
      : random_(seed), pages_(pages), tally_(tally) {
    std::vector<std::unique_ptr<SpillStore>> children;
    const std::size_t disks = 1 + random_() % 3;
    for (std::size_t i = 0; i < disks; ++i) {
      const Bytes capacity((2 + random_() % 6) * kExtentBytes);
      children.push_back(make_faulty_disk(random_, Faults::kAll, capacity, notifier_, clock_));
    }
    store_ = make_striped_store(std::move(children), notifier_);
  }

  void run() {
    for (int step = 0; step < 60 && !testing::Test::HasFatalFailure(); ++step) {
      const unsigned choice = random_() % 8;
      if (choice < 3)
        start_write();
      else if (choice < 6)
        start_read();
      else if (choice == 6)
        release_one();
      else
        look();
    }
    for (int looks = 0; !under_way_.empty(); ++looks) {
      ASSERT_LT(looks, 10000) << "transfers are lost: " << under_way_.size();
      look();
    }
    EXPECT_EQ(store_->in_flight(), 0U);
    tally_.retries += store_->report().retries;
  }

 private:
  struct Request {
    ExtentId extent;
    std::size_t page = 0;
    std::uint64_t pattern = 0;
    bool is_write = false;
  };

  std::optional<std::size_t> idle_page() const {
    for (std::size_t page = 0; page < kPages; ++page)
      if (!busy_pages_.contains(page)) return page;
    return std::nullopt;
  }

  void start(Request request) {
    const std::uint64_t tag = next_tag_++;
    busy_pages_.insert(request.page);
    busy_extents_.insert(request.extent);
    store_->submit({request.is_write ? Direction::kWrite : Direction::kRead, request.extent,
                    pages_[request.page], kSize, tag});
    under_way_.emplace(tag, request);
  }

  void start_write() {
    const auto page = idle_page();
    if (!page || store_->in_flight() == store_->queue_depth()) return look();
    const auto extent = store_->reserve_extent();
    if (!extent) {
      ++tally_.refusals;
      EXPECT_NE(store_->report().refusal, "");
      return;
    }
    pages_.fill(*page, ++last_pattern_, kSize);
    start({*extent, *page, last_pattern_, true});
  }

  std::map<ExtentId, std::uint64_t>::iterator idle_extent() {
    if (stored_.empty()) return stored_.end();
    auto found = stored_.begin();
    std::advance(found, random_() % stored_.size());
    return busy_extents_.contains(found->first) ? stored_.end() : found;
  }

  void start_read() {
    const auto page = idle_page();
    const auto found = idle_extent();
    if (!page || found == stored_.end() || store_->in_flight() == store_->queue_depth())
      return look();
    pages_.fill(*page, 0, kSize);
    start({found->first, *page, found->second, false});
  }

  void release_one() {
    const auto found = idle_extent();
    if (found == stored_.end()) return;
    store_->release_extent(found->first);
    stored_.erase(found);
  }

  void look() {
    clock_.advance(1ms);
    std::vector<TransferResult> results;
    store_->reap(results, 0ms);
    for (const TransferResult& result : results) finish(result);
  }

  void finish(const TransferResult& result) {
    const auto found = under_way_.find(result.transfer.tag);
    ASSERT_NE(found, under_way_.end()) << "reported twice, or never asked for";
    const Request request = found->second;
    under_way_.erase(found);
    busy_pages_.erase(request.page);
    busy_extents_.erase(request.extent);
    ASSERT_EQ(result.transfer.extent, request.extent);
    ASSERT_EQ(result.transfer.memory, pages_[request.page]);
    ASSERT_EQ(result.transfer.size, kSize);
    if (result.error != 0) {
      ASSERT_NE(result.detail, "");
      ++tally_.errors;
      tally_.wrong_sums += result.error == EBADMSG ? 1 : 0;
      if (request.is_write) store_->release_extent(request.extent);
      return;
    }
    ASSERT_TRUE(pages_.holds(request.page, request.pattern, kSize))
        << (request.is_write ? "the caller's bytes were changed"
                             : "wrong bytes came back as right");
    (request.is_write ? tally_.good_writes : tally_.good_reads) += 1;
    if (request.is_write) stored_[request.extent] = request.pattern;
  }

  std::mt19937_64 random_;
  PatternPages& pages_;
  Tally& tally_;
  ManualClock clock_;
  std::shared_ptr<Notifier> notifier_ = std::make_shared<Notifier>();
  std::unique_ptr<SpillStore> store_;
  std::map<std::uint64_t, Request> under_way_;
  std::map<ExtentId, std::uint64_t> stored_;
  std::set<std::size_t> busy_pages_;
  std::set<ExtentId> busy_extents_;
  std::uint64_t next_tag_ = 0;
  std::uint64_t last_pattern_ = 0;
};

TEST(SpillStoreFaults, NeverLoseATransferOrAByte) {
  constexpr std::uint64_t kSchedules = tries(3000, 800);
  PatternPages pages(kPages);
  Tally tally;
  for (std::uint64_t seed = 1; seed <= kSchedules; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule(seed, pages, tally).run();
    if (HasFatalFailure()) return;
  }
  // The schedules must have met everything they are for.
  EXPECT_GT(tally.good_reads, kSchedules);
  EXPECT_GT(tally.good_writes, kSchedules);
  EXPECT_GT(tally.retries, kSchedules);
  EXPECT_GT(tally.errors, kSchedules / 10);
  EXPECT_GT(tally.wrong_sums, kSchedules / 50);
  EXPECT_GT(tally.refusals, kSchedules / 10);
  RecordProperty("good_reads", std::to_string(tally.good_reads));
  RecordProperty("retries", std::to_string(tally.retries));
  RecordProperty("wrong_sums", std::to_string(tally.wrong_sums));
}

}  // namespace
}  // namespace spillway::swap
