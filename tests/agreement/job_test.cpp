#include "spillway/pipeline/agreement/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "job_ranks.h"
#include "spillway/pipeline/agreement/process_facts.h"
#include "support/golden_part.h"

namespace spillway::pipeline {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using transport::InProcessRanks;
using transport::Stream;
using transport::Transport;

const std::function<std::string()> kValue = [] { return std::string("the value of aten::mm"); };

device::DeviceSpan span_of(std::vector<std::byte>& bytes) {
  return device::host_span(bytes.data(), Bytes(bytes.size()));
}

/// Rank 0 takes a value of rank 1 in the second call, before which rank 1 does something else.
std::string failure_of_pair(JobRanks& ranks, const std::function<void(Job&)>& before_send) {
  return ranks.run([&](Transport& transport, Job& job) {
    std::vector<std::byte> bytes(8);
    call(job, "aten::conv", 1);
    if (transport.rank() == Rank(1)) before_send(job);
    call(job, "aten::mm", 7);
    if (transport.rank() == Rank(0))
      job.wait(transport.receive(Rank(1), {Stream::kValues, 0}, span_of(bytes)), Rank(1), kValue);
    if (transport.rank() == Rank(1))
      job.wait(transport.send(Rank(0), {Stream::kValues, 0}, span_of(bytes)), Rank(0), kValue);
    job.end();
  });
}

/// What each rank is told of facts that `facts_of` gives it.
std::vector<std::string> refusals(const std::function<JobFacts(Rank)>& facts_of,
                                  const std::vector<std::string>& hosts = {}) {
  std::vector<std::string> texts(3);
  JobRanks ranks({.ranks = 3, .most_delay = milliseconds(1), .sends_wait = true});
  EXPECT_EQ(ranks.failure_of([&](Transport& transport) {
    JobOptions options = ranks.options();
    options.hosts = hosts;
    try {
      Job(transport, facts_of(transport.rank()), options).end();
    } catch (const ConfigError& error) {
      texts[transport.rank().value()] = error.what();
    }
  }),
            "");
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  return texts;
}

TEST(Facts, AreNoReasonWhereTheyAreEqual) {
  EXPECT_EQ(refusals([](Rank) { return JobFacts{{"program", "/bin/a"}, {"seed", ""}}; })[0], "");
}

TEST(Facts, AreNamedWithBothValuesAndTheRanks) {
  GoldenPart golden;
  const auto facts_of = [](Rank rank) {
    return JobFacts{{"program", "/bin/a"}, {"LibTorch", rank == Rank(1) ? "2.12.0" : "2.11.0"}};
  };
  EXPECT_EQ(
      refusals(facts_of)[0],
      "LibTorch is \"2.11.0\" on ranks 0 and 2 and \"2.12.0\" on rank 1: a split program needs "
      "it to be equal on all ranks");
  golden.add(refusals(facts_of, {"a", "b", "c"})[0]);
}

TEST(Facts, AreNamedWhereARankLacksThem) {
  GoldenPart golden;
  const auto lacking = [](Rank without) {
    return [=](Rank rank) {
      return rank == without ? JobFacts{} : JobFacts{{"OMP_NUM_THREADS", "2"}};
    };
  };
  golden.add(refusals(lacking(Rank(0)))[0]);
  golden.add(refusals(lacking(Rank(2)))[0]);
}

TEST(Facts, AreShownNearTheirFirstDifference) {
  GoldenPart golden;
  const std::string long_text(1000, 'x');
  const std::string text = refusals([&](Rank rank) {
    return JobFacts{
        {"arguments", long_text + (rank == Rank(2) ? "--seed\n1 " : "--seed\n2 ") + long_text}};
  })[0];
  golden.add(text);
  EXPECT_LT(text.size(), 300u);
}

TEST(Facts, OfProcessorsThatDifferAreAWarningOfTheFirstRank) {
  GoldenPart golden;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(refusals([](Rank rank) {
              const std::string kinds = rank == Rank(1) ? "avx2" : "avx2 avx512f";
              return JobFacts{{std::string(kProcessorFact), kinds}};
            })[0],
            "");
  const std::string log = ::testing::internal::GetCapturedStderr();
  golden.add(log);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST(Facts, NeedAHostOfEachRankOrNone) {
  GoldenPart golden;
  JobRanks ranks({.ranks = 2});
  golden.add(ranks.failure_of([&](Transport& transport) { Job(transport, {}, {.hosts = {"a"}}); }));
}

TEST(Facts, AreWaitedForAndTheLogTellsOfWhom) {
  GoldenPart golden;
  JobRanks ranks({.ranks = 3});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ranks.failure_of([&](Transport& transport) {
    if (transport.rank() == Rank(1)) ranks.ranks().work(seconds(1000));
    Job(transport, {}, ranks.options()).end();
  }),
            "");
  const std::string log = ::testing::internal::GetCapturedStderr();
  golden.add(log);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST(Job, EndsAloneWhereItHasOneRank) {
  JobRanks ranks({.ranks = 1});
  EXPECT_EQ(ranks.run([](Transport&, Job& job) {
    call(job, "aten::mm", 1);
    job.compare();
    job.compare();
    job.end();
  }),
            "");
}

TEST(Job, LetsASlowRankTakeItsTimeAndTellsOfItOnce) {
  JobRanks ranks({.ranks = 2});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(failure_of_pair(ranks, [&](Job&) { ranks.ranks().work(seconds(1000)); }), "");
  GoldenPart().add(::testing::internal::GetCapturedStderr());
}

TEST(Job, NamesARankThatDoesNotAnswer) {
  GoldenPart golden;
  for (const bool is_silent : {true, false}) {
    JobRanks ranks({.ranks = 3, .latency = milliseconds(1)});
    ::testing::internal::CaptureStderr();
    const std::string failure = ranks.failure_of([&](Transport& transport) {
      JobOptions options = ranks.options();
      options.hosts = {"a", "b", "c"};
      const bool is_stopped = transport.rank() == Rank(1);
      // Its service thread runs as late as its program.
      const Duration stop = is_silent ? seconds(1000) : seconds(4);
      if (is_stopped)
        options.start_thread = [&ranks, stop](std::function<void()> work) {
          ranks.ranks().start([&ranks, stop, work] {
            ranks.ranks().work(stop);
            work();
          });
        };
      Job job(transport, {}, options);
      job.describe_by([] { return std::vector<std::string>{"computes nothing"}; }, {});
      if (is_stopped) ranks.ranks().work(stop);
      job.end();
    });
    golden.add(::testing::internal::GetCapturedStderr());
    golden.add(failure);
  }
}

/// Jumps by an hour each time that it is asked.
class JumpingClock final : public Clock {
 public:
  explicit JumpingClock(const Clock& clock) : clock_(clock) {}
  TimePoint now() const override { return clock_.now() + std::chrono::hours(++jumps_); }

 private:
  const Clock& clock_;
  mutable std::int64_t jumps_ = 0;
};

TEST(Job, DoesNotTakeATimeInWhichItWasStoppedItselfForThatOfOthers) {
  JobRanks ranks({.ranks = 2, .latency = milliseconds(1)});
  const JumpingClock clock(ranks.ranks().clock());
  EXPECT_EQ(ranks.failure_of([&](Transport& transport) {
    JobOptions options = ranks.options();
    if (transport.rank() == Rank(0)) options.clock = &clock;
    Job job(transport, {}, options);
    if (transport.rank() == Rank(1)) ranks.ranks().work(milliseconds(10));
    job.end();
  }),
            "");
}

TEST(Job, EndsWhereAnotherProgramHasEndedBefore) {
  JobRanks ranks({.ranks = 2});
  const std::string failure = ranks.run([&](Transport& transport, Job& job) {
    call(job, "aten::conv", 1);
    if (transport.rank() == Rank(1)) return job.end();
    call(job, "aten::mm", 7);
    ranks.ranks().work(seconds(1000));
    ADD_FAILURE() << "the service thread has let the program go on";
  });
  GoldenPart().add(failure);
}

TEST(Job, FindsInASecondStepWhatNoWaitFinds) {
  JobRanks ranks({.ranks = 4, .most_delay = milliseconds(5)});
  const std::string failure = ranks.run([&](Transport& transport, Job& job) {
    for (std::uint64_t step = 0; step < 100; ++step) {
      call(job, "aten::mm", step == 10 && transport.rank() == Rank(2) ? 7 : step);
      job.compare();
    }
    ADD_FAILURE() << "no comparison has ended the job";
  });
  GoldenPart().add(failure);
}

TEST(Job, NeedsComparisonsAtTheSameCalls) {
  JobRanks ranks({.ranks = 2});
  const std::string failure = ranks.run([&](Transport& transport, Job& job) {
    call(job, "aten::mm", 1);
    if (transport.rank() == Rank(1)) job.compare();
    job.end();
  });
  GoldenPart().add(failure);
}

TEST(Job, EndsWhereARankWaitsForAnEndedOneLater) {
  JobRanks ranks({.ranks = 2});
  const std::string failure = ranks.run([&](Transport& transport, Job& job) {
    call(job, "aten::conv", 1);
    if (transport.rank() == Rank(1)) return job.end();
    ranks.ranks().work(seconds(10));  // That the other one has ended is known before the next call.
    call(job, "aten::mm", 7);
    std::vector<std::byte> bytes(8);
    job.wait(transport.receive(Rank(1), {Stream::kValues, 0}, span_of(bytes)), Rank(1), kValue);
  });
  GoldenPart().add(failure);
}

/// Both wait for each other, at calls that are too far apart to compare.
TEST(Job, EndsWhereRanksThatCannotBeComparedWaitForOneAnother) {
  JobRanks ranks({.ranks = 2});
  const std::string failure = ranks.run([&](Transport& transport, Job& job) {
    const std::uint64_t calls = transport.rank() == Rank(0) ? 3 * ControlHash::kKept : 10;
    for (std::uint64_t i = 0; i < calls; ++i) call(job, "aten::mm", i);
    std::vector<std::byte> bytes(8);
    const Rank other(1 - transport.rank().value());
    job.wait(transport.receive(other, {Stream::kValues, 0}, span_of(bytes)), other, kValue);
  });
  GoldenPart().add(failure);
}

TEST(Job, EndsWhereRanksWaitForOneAnotherAtTheSameCall) {
  JobRanks ranks({.ranks = 2});
  const std::string failure = ranks.run([&](Transport& transport, Job& job) {
    call(job, "aten::mm", 1);
    std::vector<std::byte> bytes(8);
    const Rank other(1 - transport.rank().value());
    job.wait(transport.receive(other, {Stream::kValues, 0}, span_of(bytes)), other, kValue);
  });
  GoldenPart().add(failure);
}

/// Each rank waits for the next one, and the last one for the first. `one_gets_on`: the executor of
/// the first one works for long, and then sends what the last one waits for.
std::string failure_of_ring(std::uint32_t count, bool one_gets_on) {
  JobRanks ranks({.ranks = count});
  return ranks.run([&](Transport& transport, Job& job) {
    call(job, "aten::mm", 1);
    std::vector<std::byte> bytes(8), sent(8);
    const std::uint32_t me = transport.rank().value();
    const Rank next((me + 1) % count), before((me + count - 1) % count);
    const auto receive = transport.receive(next, {Stream::kValues, 0}, span_of(bytes));
    const auto send = [&] { return transport.send(before, {Stream::kValues, 0}, span_of(sent)); };
    std::uint64_t pieces = 0;
    if (me == 0 && one_gets_on) {
      job.describe_by({}, [&] { return pieces; });
      ranks.ranks().start([&] {
        for (; pieces < 6; ++pieces) ranks.ranks().work(seconds(500));
        send();
      });
      job.wait(receive, next, kValue);
    } else {
      job.wait(receive, next, kValue);
      job.wait(send(), before, kValue);
    }
    job.end();
    job.describe_by({}, {});  // Others may ask for longer than `pieces` lives.
  });
}

TEST(Job, EndsWhereRanksWaitForOneAnotherInARing) {
  GoldenPart().add(failure_of_ring(4, /*one_gets_on=*/false));
}

/// Programs look at the same number, for which the executor of one rank works for long.
TEST(Job, LetsRanksWaitForOneAnotherForLongWhileOneOfThemGetsOn) {
  EXPECT_EQ(failure_of_ring(2, /*one_gets_on=*/true), "");
  EXPECT_EQ(failure_of_ring(4, /*one_gets_on=*/true), "");
}

/// One computes for longer than two ranks may wait for each other.
TEST(Job, LetsARankComputeForLongThatWaitedForTheOtherOneBefore) {
  JobRanks ranks({.ranks = 2});
  const std::string failure = ranks.run([&](Transport& transport, Job& job) {
    call(job, "aten::mm", 1);
    std::vector<std::byte> bytes(8);
    const auto wait = [&](Rank other) {
      job.wait(transport.receive(other, {Stream::kValues, 0}, span_of(bytes)), other, kValue);
    };
    if (transport.rank() == Rank(0)) {
      job.wait(transport.send(Rank(1), {Stream::kValues, 0}, span_of(bytes)), Rank(1), kValue);
      wait(Rank(1));
    } else {
      wait(Rank(0));
      ranks.ranks().work(seconds(3000));
      job.wait(transport.send(Rank(0), {Stream::kValues, 0}, span_of(bytes)), Rank(0), kValue);
    }
    job.end();
  });
  EXPECT_EQ(failure, "");
}

/// Rank 2 waits for rank 1, which has ended and waits for rank 0, which computes.
TEST(Job, WithoutControlEndsWhereOthersHaveEndedOnly) {
  GoldenPart golden;
  for (const bool waits : {false, true}) {
    JobRanks ranks({.ranks = 3});
    const std::string failure = ranks.failure_of([&](Transport& transport) {
      JobOptions options = ranks.options();
      options.check_control = false;
      Job job(transport, {}, options);
      call(job, "aten::mm", transport.rank().value());
      job.compare();
      std::vector<std::byte> bytes(8);
      if (transport.rank() == Rank(0)) ranks.ranks().work(seconds(10000));
      if (waits && transport.rank() == Rank(2))
        job.wait(transport.receive(Rank(1), {Stream::kValues, 0}, span_of(bytes)), Rank(1), kValue);
      job.end();
    });
    golden.add(failure);
    EXPECT_EQ(waits, ranks.ranks().clock().now().time_since_epoch() < seconds(10000));
  }
}

TEST(Job, WithoutControlLetsALastMessageArriveAfterItsSenderHasEnded) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    JobRanks ranks({.ranks = 2, .seed = seed, .most_delay = seconds(2)});
    EXPECT_EQ(ranks.failure_of([&](Transport& transport) {
      JobOptions options = ranks.options();
      options.check_control = false;
      Job job(transport, {}, options);
      std::vector<std::byte> bytes(8);
      if (transport.rank() == Rank(1)) {
        ranks.ranks().work(seconds(1000));
        transport.send(Rank(0), {Stream::kValues, 0}, span_of(bytes));
      } else {
        job.wait(transport.receive(Rank(1), {Stream::kValues, 0}, span_of(bytes)), Rank(1), kValue);
      }
      job.end();
    }),
              "")
        << seed;
  }
}

/// Another thread of rank 0 takes the value of rank 1, for which the program waits.
TEST(Job, WaitsForOtherThreadsOfItsRankAsForMessages) {
  GoldenPart golden;
  for (const bool is_apart : {false, true}) {
    JobRanks ranks({.ranks = 2});
    const std::string failure = ranks.run([&](Transport& transport, Job& job) {
      std::vector<std::byte> bytes(8);
      const transport::Tag tag{Stream::kValues, 0};
      call(job, "aten::mm", is_apart ? transport.rank().value() : 7);
      if (transport.rank() == Rank(1)) {
        ranks.ranks().work(seconds(1000));
        if (!is_apart) job.wait(transport.send(Rank(0), tag, span_of(bytes)), Rank(0), kValue);
        return job.end();
      }
      bool has_come = false;
      ranks.ranks().start([&] {
        transport.receive(Rank(1), tag, span_of(bytes)).wait();
        has_come = true;
        job.notify();
      });
      job.wait_until([&] { return has_come; }, [&] { return has_come ? Rank() : Rank(1); }, kValue);
      job.end();
    });
    golden.add(failure);
  }
}

TEST(Job, EndsWithTheReasonAndThePlaceOfWhoEndsIt) {
  JobRanks ranks({.ranks = 2});
  GoldenPart().add(ranks.failure_of([&](Transport& transport) {
    JobOptions options = ranks.options();
    options.hosts = {"a", "b"};
    Job job(transport, {}, options);
    if (transport.rank() == Rank(1)) job.abort("aten::conv has failed");
    job.end();
  }));
}

TEST(Job, DescribesWhatARankDoes) {
  JobRanks ranks({.ranks = 2});
  std::vector<std::string> before, working, waiting, ended;
  EXPECT_EQ(ranks.run([&](Transport& transport, Job& job) {
    if (transport.rank() == Rank(1)) {
      call(job, "aten::conv", 1);
      ranks.ranks().work(seconds(20));
      std::vector<std::byte> bytes(8);
      const auto sent = transport.send(Rank(0), {Stream::kValues, 0}, span_of(bytes));
      job.wait(sent, Rank(0), kValue);
      return job.end();
    }
    before = job.describe();
    call(job, "aten::conv", 1);
    working = job.describe();
    ranks.ranks().start([&] {
      ranks.ranks().work(seconds(10));
      job.describe_by([] { return std::vector<std::string>{"computes", "has computed"}; }, {});
      waiting = job.describe();
      job.describe_by({}, {});
    });
    std::vector<std::byte> bytes(8);
    job.wait(transport.receive(Rank(1), {Stream::kValues, 0}, span_of(bytes)), Rank(1), kValue);
    job.end();
    ended = job.describe();
  }),
            "");
  EXPECT_THAT(before, ElementsAre("rank 0 is before its first call"));
  EXPECT_THAT(working,
              ElementsAre("rank 0 is at call 0, aten::conv; its latest calls: 0 aten::conv"));
  EXPECT_THAT(waiting,
              ElementsAre("rank 0 is at call 0, aten::conv, and has waited 10 s for the value of "
                          "aten::mm of rank 1; its latest calls: 0 aten::conv",
                          "rank 0 computes", "rank 0 has computed"));
  EXPECT_THAT(
      ended, ElementsAre("rank 0 has ended at call 0, aten::conv; its latest calls: 0 aten::conv"));
}

}  // namespace
}  // namespace spillway::pipeline
