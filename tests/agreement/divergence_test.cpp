// Random programs on ranks of one process, one of which goes apart from the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "job_ranks.h"

namespace spillway::pipeline {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using transport::Stream;
using transport::Transport;

enum class Change { kNone, kOtherCall, kOtherArgument, kOneMore, kOneLess, kEarlyEnd, kExit };

/// One call of the program of all ranks, and the message in it.
struct DrawnCall {
  std::string_view name;
  std::uint64_t argument = 0;
  Rank from, to;  ///< None: no message.
  std::size_t size = 0;
  Duration work{0};
  bool ends_step = false;
};

/// What a seed makes: links, the program, and who changes it at which call.
struct Drawn {
  transport::InProcessOptions options;
  std::vector<DrawnCall> calls;
  Rank apart;
  std::size_t at = 0;
};

Drawn drawn(std::uint64_t seed) {
  std::mt19937_64 draws(seed);
  const auto below = [&draws](std::uint64_t limit) { return draws() % limit; };
  Drawn all;
  all.options = {.ranks = static_cast<std::uint32_t>(2 + below(4)),
                 .seed = seed,
                 .latency = milliseconds(below(3)),
                 .most_delay = milliseconds(below(2) == 0 ? 0 : 1 + below(300)),
                 .sends_wait = below(2) == 0};
  constexpr std::array<std::string_view, 4> kNames{"aten::mm", "aten::add", "aten::relu",
                                                   "aten::sum"};
  all.calls.resize(1 + below(40));
  for (DrawnCall& one : all.calls) {
    one.name = kNames[below(kNames.size())];
    one.argument = draws();
    if (below(3) == 0) {
      one.from = Rank(static_cast<std::uint32_t>(below(all.options.ranks)));
      one.to = Rank(static_cast<std::uint32_t>(below(all.options.ranks)));
      one.size = 1 + below(3);
    }
    if (below(4) == 0) one.work = milliseconds(below(20000));
    one.ends_step = below(6) == 0;
  }
  all.apart = Rank(static_cast<std::uint32_t>(below(all.options.ranks)));
  all.at = below(all.calls.size());
  return all;
}

/// The calls of a rank's program.
std::vector<DrawnCall> changed(std::vector<DrawnCall> calls, std::size_t at, Change change) {
  const auto here = calls.begin() + static_cast<std::ptrdiff_t>(at);
  switch (change) {
    case Change::kNone: break;
    case Change::kOtherCall: here->name = "aten::other"; break;
    case Change::kOtherArgument: ++here->argument; break;
    case Change::kOneMore: {
      DrawnCall more = *here;
      more.name = "aten::more";
      calls.insert(here, more);
      break;
    }
    case Change::kOneLess: calls.erase(here); break;
    case Change::kEarlyEnd: calls.erase(here, calls.end()); break;
    case Change::kExit:
      *here = DrawnCall();
      here->name = ControlHash::kEndOfProgram;
      calls.erase(here + 1, calls.end());
      break;
  }
  return calls;
}

void run_calls(JobRanks& ranks, Transport& transport, Job& job,
               const std::vector<DrawnCall>& calls) {
  std::uint64_t number = 0;
  for (const DrawnCall& one : calls) {
    call(job, one.name, one.argument);
    if (one.from != one.to) {
      std::vector<std::byte> bytes(one.size);
      const auto span = device::host_span(bytes.data(), Bytes(bytes.size()));
      const transport::Tag tag{Stream::kValues, number++};
      const auto what = [&tag] { return to_string(tag); };
      if (transport.rank() == one.from) job.wait(transport.send(one.to, tag, span), one.to, what);
      if (transport.rank() == one.to)
        job.wait(transport.receive(one.from, tag, span), one.from, what);
    }
    if (one.work > Duration(0)) ranks.ranks().work(one.work);
    if (one.ends_step) job.compare();
  }
  job.end();
}

std::string failure_of(const Drawn& all, Change change) {
  JobRanks ranks(all.options);
  return ranks.run([&](Transport& transport, Job& job) {
    const bool is_apart = transport.rank() == all.apart;
    run_calls(ranks, transport, job, changed(all.calls, all.at, is_apart ? change : Change::kNone));
  });
}

constexpr std::uint64_t kSeeds = 300;

TEST(RandomPrograms, EndTogetherWhereTheyAreEqual) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed)
    ASSERT_EQ(failure_of(drawn(seed), Change::kNone), "") << seed;
}

/// Who went apart, and from whom.
::testing::Matcher<std::string> names_both(const Drawn& all) {
  return AllOf(HasSubstr("went apart: "), HasSubstr(message("rank {}", all.apart)));
}

::testing::Matcher<std::string> advises_on_seeds() {
  return HasSubstr("(seed the program equally on all ranks");
}

::testing::Matcher<std::string> advises_on_an_end() {
  return HasSubstr("(what the rank that has ended wrote last tells why: ");
}

void check_changes(Change change, const std::function<std::string(const Drawn&)>& place_of) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Drawn all = drawn(seed);
    const std::string failure = failure_of(all, change);
    ASSERT_THAT(failure, AllOf(names_both(all), HasSubstr(place_of(all)))) << seed;
    const bool is_end = failure.find("calls in all") != std::string::npos ||
                        failure.find(ControlHash::kEndOfProgram) != std::string::npos;
    ASSERT_THAT(failure, is_end ? advises_on_an_end() : advises_on_seeds()) << seed;
  }
}

TEST(RandomPrograms, AreToldOfAnotherCall) {
  check_changes(Change::kOtherCall,
                [](const Drawn& all) { return message("aten::other on rank {}", all.apart); });
}

TEST(RandomPrograms, AreToldOfAnotherArgument) {
  check_changes(Change::kOtherArgument, [](const Drawn& all) {
    return message("argument 0 of call {}, {}, differs between", all.at, all.calls[all.at].name);
  });
}

TEST(RandomPrograms, AreToldOfOneCallMore) {
  check_changes(Change::kOneMore,
                [](const Drawn& all) { return message("aten::more on rank {}", all.apart); });
}

TEST(RandomPrograms, AreToldOfOneCallLess) {
  check_changes(Change::kOneLess, [](const Drawn& all) {
    return all.at + 1 == all.calls.size()
               ? message("rank {} has made {} calls in all", all.apart, all.at)
               : message("call {}", all.at);
  });
}

TEST(RandomPrograms, AreToldOfAnEarlyEnd) {
  check_changes(Change::kEarlyEnd, [](const Drawn& all) {
    return message("rank {} has made {} calls in all, and rank ", all.apart, all.at);
  });
}

TEST(RandomPrograms, AreToldOfAnExit) {
  check_changes(Change::kExit, [](const Drawn& all) {
    return message("the end of the program on rank {}", all.apart);
  });
}

TEST(RandomPrograms, AreToldOfADeathAtWhicheverMoment) {
  std::size_t deaths = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Drawn all = drawn(seed);
    all.options.death = transport::InProcessOptions::Death{all.apart, seed % 50};
    const std::string failure = failure_of(all, Change::kNone);
    if (failure.empty()) continue;
    ++deaths;
    ASSERT_THAT(failure, HasSubstr(message("rank {} has died", all.apart))) << seed;
  }
  EXPECT_GT(deaths, kSeeds / 2);
}

}  // namespace
}  // namespace spillway::pipeline
