#include "spillway/transport/group.h"

#include "drawn_messages.h"
#include "notifier_conformance.h"
#include "spillway/transport/in_process.h"
#include "transport_conformance.h"

namespace spillway::transport {
namespace {

const std::vector<Rank> kMembers{Rank(4), Rank(1), Rank(3)};

/// Each body on three of five ranks, which count themselves in another order than the job does.
template <bool sends_wait>
class Group {
 public:
  void run(const InProcessRanks::Body& body) {
    InProcessRanks ranks({.ranks = 5,
                          .seed = 3,
                          .latency = std::chrono::microseconds(2),
                          .most_delay = std::chrono::milliseconds(1),
                          .sends_wait = sends_wait});
    running_ = &ranks;
    ranks.run([&](Transport& job) {
      if (job.rank() == Rank(0) || job.rank() == Rank(2)) return;
      const auto group = make_group(job, kMembers);
      body(*group);
    });
  }
  void start(std::function<void()> work) { running_->start(std::move(work)); }
  Rank rank_in_job(Rank rank) const { return kMembers[rank.value()]; }

 private:
  InProcessRanks* running_ = nullptr;
};

INSTANTIATE_TYPED_TEST_SUITE_P(OfInProcessRanks, TransportConformance, Group<false>);
INSTANTIATE_TYPED_TEST_SUITE_P(OfRanksWhoseSendsWait, TransportConformance, Group<true>);
INSTANTIATE_TYPED_TEST_SUITE_P(OfInProcessRanks, NotifierConformance, Group<false>);
INSTANTIATE_TYPED_TEST_SUITE_P(OfRanksWhoseSendsWait, NotifierConformance, Group<true>);

TEST(MakeGroup, CountsItsRanksInTheOrderOfMembers) {
  const std::vector<Rank> members{Rank(3), Rank(0), Rank(2)};
  InProcessRanks({.ranks = 4}).run([&](Transport& job) {
    if (job.rank() == Rank(1)) return;
    const auto group = make_group(job, members);
    ASSERT_EQ(group->ranks(), 3u);
    EXPECT_EQ(members[group->rank().value()], job.rank());
    // The job's rank 2 is the last one; each of the others sends what it is.
    std::vector<std::byte> bytes{static_cast<std::byte>(job.rank().value())};
    if (group->rank() != Rank(2)) {
      expect_success(group->send(Rank(2), value(1), span_of(bytes)));
      return;
    }
    for (const Rank from : {Rank(0), Rank(1)}) {
      expect_success(group->receive(from, value(1), span_of(bytes)));
      EXPECT_EQ(bytes[0], static_cast<std::byte>(members[from.value()].value()));
    }
  });
}

TEST(MakeGroup, EndsTheWholeJob) {
  InProcessRanks ranks({.ranks = 3});
  EXPECT_THROW(ranks.run([](Transport& job) {
    if (job.rank() == Rank(0)) {
      job.make_notifier()->wait();
      ADD_FAILURE();
    }
    const auto group = make_group(job, {Rank(1), Rank(2)});
    if (group->rank() == Rank(1)) group->abort("gradients differ");
    group->make_notifier()->wait();
    ADD_FAILURE();
  }),
               TransportError);
}

TEST(MakeGroup, RefusesMembersThatAreNone) {
  InProcessRanks({.ranks = 3}).run([](Transport& job) {
    EXPECT_THROW(make_group(job, {Rank(0), Rank(1), Rank(2), Rank(3)}), Error);
    EXPECT_THROW(make_group(job, {Rank(0), Rank(1), Rank(2), Rank()}), Error);
    EXPECT_THROW(make_group(job, {Rank(0), Rank(1), Rank(2), Rank(1)}), Error);
    EXPECT_THROW(make_group(job, {Rank((job.rank().value() + 1) % 3)}), Error);
    EXPECT_THROW(make_group(job, {}), Error);
    EXPECT_EQ(make_group(job, {job.rank()})->ranks(), 1u);
  });
}

}  // namespace
}  // namespace spillway::transport
