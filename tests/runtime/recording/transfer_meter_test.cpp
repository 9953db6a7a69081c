#include "spillway/runtime/recording/transfer_meter.h"

#include <gmock/gmock.h>

#include <vector>

#include "support/manual_clock.h"

namespace spillway::runtime {
namespace {

using namespace std::chrono_literals;
using profile::TransferRates;
using swap::Direction;
using swap::Transfer;
using testing::DoubleNear;

constexpr std::size_t kPage = swap::kExtentBytes;
constexpr double kPages = static_cast<double>(kPage);  // Per second.

/// Rates in pages per second, to be read at a glance.
TransferRates rates(double write, double read, double share = 0.5) {
  TransferRates rates;
  rates.write = TransferRate(write * kPages);
  rates.read = TransferRate(read * kPages);
  rates.duplex_share = share;
  return rates;
}

/// A meter that is shown transfers of whole pages, which begin and end when told.
class TransferMeterTest : public testing::Test {
 protected:
  std::uint64_t begin(Direction direction) {
    under_way_.push_back(direction);
    meter_.begin_transfer(transfer(under_way_.size() - 1), {}, false, clock_.now());
    return under_way_.size() - 1;
  }
  void end(const std::vector<std::uint64_t>& tags, int error = 0) {
    std::vector<swap::TransferResult> results;
    for (const std::uint64_t tag : tags) results.push_back({transfer(tag), error, {}});
    meter_.end_transfers(results, clock_.now(), {});
  }
  /// So many pages, one after the other.
  void move(Direction direction, int pages, Duration each) {
    for (int i = 0; i < pages; ++i) {
      const std::uint64_t tag = begin(direction);
      clock_.advance(each);
      end({tag});
      clock_.advance(1s);  // Idle time is nobody's.
    }
  }
  void expect(double write, double read, double share) const {
    const TransferRates seen = meter_.rates();
    EXPECT_THAT(seen.write.bytes_per_second() / kPages, DoubleNear(write, 1e-2 * write));
    EXPECT_THAT(seen.read.bytes_per_second() / kPages, DoubleNear(read, 1e-2 * read));
    EXPECT_THAT(seen.duplex_share, DoubleNear(share, 0.01));
  }

  TransferMeter meter_{
      {.before = rates(100, 200), .trust = Bytes(10 * kPage), .horizon = Bytes(10000 * kPage)}};
  ManualClock clock_;

 private:
  Transfer transfer(std::uint64_t tag) const {
    return {under_way_[tag], swap::ExtentId(1), nullptr, kPage, tag};
  }
  std::vector<Direction> under_way_;
};

TEST_F(TransferMeterTest, WhatIsNotSeenStaysAsItWas) {
  expect(100, 200, 0.5);
  move(Direction::kWrite, 2000, 2ms);
  expect(500 * 2010 / (2000 + 50.0), 200, 0.5);  // Ten pages as if at 100 per second.
}

TEST_F(TransferMeterTest, SeesBothDirectionsAlone) {
  move(Direction::kWrite, 3000, 20ms);
  move(Direction::kRead, 3000, 1ms);
  expect(50, 1000 * 3010 / 3050.0, 0.5);
}

TEST_F(TransferMeterTest, SeveralAtOnceAddUp) {
  for (int round = 0; round < 1000; ++round) {
    const std::vector<std::uint64_t> tags = {begin(Direction::kRead), begin(Direction::kRead),
                                             begin(Direction::kRead), begin(Direction::kRead)};
    clock_.advance(8ms);
    end(tags);
  }
  expect(100, 500 * 4010 / 4025.0, 0.5);
}

TEST_F(TransferMeterTest, TimeWithBothIsApart) {
  move(Direction::kWrite, 4000, 10ms);  // 100 per second.
  move(Direction::kRead, 4000, 5ms);    // 200.
  for (int round = 0; round < 4000; ++round) {
    const std::vector<std::uint64_t> tags = {begin(Direction::kWrite), begin(Direction::kRead)};
    clock_.advance(12500us);  // 80 of each: 0.8 of the one, 0.4 of the other.
    end(tags);
  }
  expect(100, 200, 0.6);
}

TEST_F(TransferMeterTest, ATransferIsSharedOutOverWhatWentOnBesideIt) {
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t write = begin(Direction::kWrite);
    clock_.advance(10ms);
    const std::uint64_t read = begin(Direction::kRead);
    clock_.advance(10ms);
    end({write, read});
  }
  // Alone half a page of writing in 10 ms; beside it half of one and a whole one read.
  const TransferRates seen = meter_.rates();
  EXPECT_THAT(seen.write.bytes_per_second() / kPages, DoubleNear(50, 1));
  EXPECT_THAT(seen.duplex_share, DoubleNear((1.0 + 100.0 / 200) / 2, 0.01));
}

TEST_F(TransferMeterTest, OneDirectionIsNotSlowerAloneThanBesideTheOther) {
  for (int round = 0; round < 5000; ++round) {
    const std::vector<std::uint64_t> tags = {begin(Direction::kWrite), begin(Direction::kRead)};
    clock_.advance(1ms);
    end(tags);
  }
  expect(1000 * 5005 / 5100.0, 1000 * 5005 / 5050.0, 1.0);
}

TEST_F(TransferMeterTest, FollowsADiskThatSomebodyElseTakes) {
  move(Direction::kRead, 30000, 1ms);
  const double before = meter_.rates().read.bytes_per_second() / kPages;
  EXPECT_THAT(before, DoubleNear(1000, 10));
  move(Direction::kRead, 30000, 10ms);
  EXPECT_LT(meter_.rates().read.bytes_per_second() / kPages, 130);
}

TEST_F(TransferMeterTest, CountsHalfOfATransferAtEitherEnd) {
  const std::uint64_t write = begin(Direction::kWrite);
  EXPECT_EQ(meter_.moved(), Bytes(kPage / 2));
  const std::uint64_t read = begin(Direction::kRead);
  EXPECT_EQ(meter_.moved(), Bytes(kPage));
  clock_.advance(1s);
  end({write, read});
  EXPECT_EQ(meter_.moved(), Bytes(2 * kPage));
}

TEST_F(TransferMeterTest, FailedTransfersMoveNothing) {
  for (int round = 0; round < 1000; ++round) {
    const std::uint64_t good = begin(Direction::kWrite);
    const std::uint64_t bad = begin(Direction::kWrite);
    clock_.advance(5ms);
    end({bad}, EIO);
    end({good});
  }
  expect(200 * 1010 / 1020.0, 200, 0.5);
}

TEST_F(TransferMeterTest, LeavesOutTimeInWhichTheProcessStoodStill) {
  const std::uint64_t tag = begin(Direction::kWrite);
  clock_.advance(2ms);
  const TimePoint stopped = clock_.now();
  clock_.advance(1h);
  meter_.stood_still(stopped, clock_.now());
  end({tag});
  move(Direction::kWrite, 1999, 4ms);
  expect((1999 + 10) / (2e-3 + 1999 * 4e-3 + 0.1), 200, 0.5);
}

TEST_F(TransferMeterTest, CountsNothingOfWhatWasUnderWayInAStandstill) {
  std::vector<std::uint64_t> tags;
  for (int i = 0; i < 100; ++i) tags.push_back(begin(Direction::kWrite));
  clock_.advance(1us);
  const TimePoint stopped = clock_.now();
  clock_.advance(1h);
  meter_.stood_still(stopped, clock_.now());
  for (const std::uint64_t tag : tags) end({tag});
  expect(100, 200, 0.5);
}

}  // namespace
}  // namespace spillway::runtime
