#include "spillway/allreduce/sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "drawn_gradients.h"
#include "spillway/transport/group.h"
#include "spillway/transport/in_process.h"
#include "support/sanitized.h"

namespace spillway::allreduce {
namespace {

using transport::InProcessOptions;
using transport::InProcessRanks;
using transport::Transport;
using transport::TransportError;

std::vector<std::span<std::byte>> whole(Array& array) { return {std::span(array)}; }

/// As an executor does: advances what can, and waits for messages where nothing can.
void drive(Transport& group, std::vector<std::unique_ptr<Sum>>& sums) {
  const auto notifier = group.make_notifier(transport::Stream::kSums);
  while (true) {
    std::erase_if(sums, [](const auto& sum) { return sum->advance(); });
    if (sums.empty()) return;
    EXPECT_TRUE(sums.front()->waits_for().is_some());
    notifier->wait();
  }
}

void add_up_now(Transport& group, Element element, Array& array, const SumOptions& options = {}) {
  std::vector<std::unique_ptr<Sum>> sums;
  sums.push_back(begin_sum(group, 7, element, whole(array), options));
  drive(group, sums);
}

/// One sum of several at once: the arrays of all ranks, and what comes of them.
struct Planned {
  std::uint64_t number = 0;
  Element element{};
  SumOptions options;
  std::vector<Array> arrays;
  Array expected;
};

/// Slice `index` of `count` even ones, of whole elements, the larger ones first.
Array slice(const Array& array, std::size_t element, std::size_t count, std::size_t index) {
  const std::size_t all = array.size() / element;
  const auto begin_of = [&](std::size_t i) {
    return array.begin() +
           static_cast<std::ptrdiff_t>((all / count * i + std::min(i, all % count)) * element);
  };
  return {begin_of(index), begin_of(index + 1)};
}

Array ordered(Element element, const std::vector<Array>& arrays) {
  Array sum = arrays.at(0);
  for (std::size_t i = 1; i < arrays.size(); ++i) sum = slow_sum(element, sum, arrays[i]);
  return sum;
}

/// The documented order of the ring: slice s ends at rank s.
Array ring(Element element, const std::vector<Array>& arrays) {
  const std::size_t ranks = arrays.size();
  Array sum;
  for (std::size_t s = 0; s < ranks; ++s) {
    std::vector<Array> chain;
    for (std::size_t i = 1; i <= ranks; ++i)
      chain.push_back(slice(arrays[(s + i) % ranks], size_of(element).count(), ranks, s));
    const Array one = ordered(element, chain);
    sum.insert(sum.end(), one.begin(), one.end());
  }
  return sum;
}

/// The documented order of the tree.
Array tree(Element element, std::vector<Array> arrays) {
  const std::size_t power = std::bit_floor(arrays.size());
  for (std::size_t i = power; i < arrays.size(); ++i)
    arrays[i - power] = slow_sum(element, arrays[i - power], arrays[i]);
  arrays.resize(power);
  while (arrays.size() > 1) {
    std::vector<Array> pairs;
    for (std::size_t i = 0; i < arrays.size(); i += 2)
      pairs.push_back(slow_sum(element, arrays[i], arrays[i + 1]));
    arrays = std::move(pairs);
  }
  return arrays[0];
}

std::vector<Array> host_sums(Element element, const std::vector<Array>& arrays,
                             const std::vector<std::string>& hosts) {
  std::vector<std::string> seen;
  std::vector<Array> sums;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto at = std::find(seen.begin(), seen.end(), hosts[i]) - seen.begin();
    if (static_cast<std::size_t>(at) == seen.size()) {
      seen.push_back(hosts[i]);
      sums.push_back(arrays[i]);
    } else {
      Array& sum = sums[static_cast<std::size_t>(at)];
      sum = slow_sum(element, sum, arrays[i]);
    }
  }
  return sums;
}

Array fast(Element element, const std::vector<Array>& arrays, const SumOptions& options) {
  const std::set<std::string> hosts(options.hosts.begin(), options.hosts.end());
  std::vector<Array> summed = arrays;
  if (hosts.size() > 1) summed = host_sums(element, arrays, options.hosts);
  if (arrays[0].size() <= options.small.count()) return tree(element, summed);
  // Each round is a ring of its own.
  const std::size_t size = size_of(element).count();
  const std::size_t most = options.piece.count() / size * size * summed.size();
  const std::size_t rounds = (arrays[0].size() + most - 1) / most;
  Array sum;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<Array> stretches;
    for (const Array& array : summed) stretches.push_back(slice(array, size, rounds, round));
    const Array one = ring(element, stretches);
    sum.insert(sum.end(), one.begin(), one.end());
  }
  return sum;
}

std::vector<std::string> drawn_hosts(std::uint32_t ranks, std::mt19937_64& random) {
  std::vector<std::string> hosts;
  const std::uint64_t count = random() % 5;
  for (std::uint32_t i = 0; i < ranks && count > 0; ++i)
    hosts.push_back("host" + std::to_string(random() % count));
  return hosts;
}

Planned planned(std::uint32_t ranks, std::uint64_t number, Order order, std::mt19937_64& random) {
  Planned plan;
  plan.number = number;
  plan.element = kElements[random() % std::size(kElements)];
  const std::uint64_t size = size_of(plan.element).count();
  plan.options.order = order;
  plan.options.hosts = drawn_hosts(ranks, random);
  plan.options.small = Bytes(random() % 2000);
  plan.options.piece = Bytes(size * (1 + random() % 40));
  const std::uint64_t count = random() % 5 == 0 ? random() % 4 : random() % 300;
  const bool is_whole = plan.element == Element::kInt32 || plan.element == Element::kInt64;
  if (!is_whole && random() % 2 == 0) plan.options.factor = 1.0 / ranks;
  for (std::uint32_t i = 0; i < ranks; ++i)
    plan.arrays.push_back(drawn_gradients(plan.element, count * size, random));
  const Array sum = order == Order::kOrdered ? ordered(plan.element, plan.arrays)
                                             : fast(plan.element, plan.arrays, plan.options);
  plan.expected = slow_product(plan.element, sum, plan.options.factor);
  return plan;
}

/// Cuts an array into parts, some of them empty, that lie apart from one another.
std::vector<Array> cut(const Array& array, std::size_t element, std::mt19937_64& random) {
  std::vector<Array> parts;
  for (std::size_t begin = 0; begin < array.size() || parts.empty();) {
    const std::size_t most = (array.size() - begin) / element;
    const std::size_t size = std::min<std::size_t>(most, random() % 60) * element;
    const auto at = array.begin() + static_cast<std::ptrdiff_t>(begin);
    parts.emplace_back(at, at + static_cast<std::ptrdiff_t>(size));
    begin += size;
  }
  return parts;
}

Array joined(const std::vector<Array>& parts) {
  Array array;
  for (const Array& part : parts) array.insert(array.end(), part.begin(), part.end());
  return array;
}

/// Begins all at once in an order of this rank's own, cut in a way of its own; returns the results.
std::vector<Array> run_rank(Transport& group, const std::vector<Planned>& plans,
                            std::mt19937_64 random) {
  std::vector<std::size_t> order(plans.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::vector<Array>> parts;
  for (const Planned& plan : plans)
    parts.push_back(cut(plan.arrays[group.rank().value()], size_of(plan.element).count(), random));
  std::vector<std::unique_ptr<Sum>> sums;
  for (const std::size_t i : order) {
    std::vector<std::span<std::byte>> spans(parts[i].begin(), parts[i].end());
    sums.push_back(begin_sum(group, plans[i].number, plans[i].element, spans, plans[i].options));
  }
  drive(group, sums);
  std::vector<Array> results;
  for (const std::vector<Array>& one : parts) results.push_back(joined(one));
  return results;
}

InProcessOptions drawn_network(std::uint32_t ranks, std::uint64_t seed, std::mt19937_64& random) {
  return {.ranks = ranks,
          .seed = seed,
          .latency = std::chrono::microseconds(random() % 3),
          .most_delay = std::chrono::microseconds(random() % 2 == 0 ? 0 : 50),
          .bytes_per_second = random() % 2 == 0 ? 0 : 1e8,
          .sends_wait = random() % 2 == 0};
}

void run_seed(std::uint64_t seed, Order order) {
  std::mt19937_64 random(seed);
  const auto ranks = static_cast<std::uint32_t>(1 + random() % 16);
  std::vector<Planned> plans;
  const std::uint64_t count = 1 + random() % 5;
  for (std::uint64_t i = 0; i < count; ++i)
    plans.push_back(planned(ranks, 1000 + i, order, random));
  std::vector<std::vector<Array>> results(ranks);
  InProcessRanks(drawn_network(ranks, seed, random)).run([&](Transport& group) {
    const std::uint32_t self = group.rank().value();
    results[self] = run_rank(group, plans, std::mt19937_64(seed * 16 + self));
  });
  for (std::size_t i = 0; i < plans.size(); ++i)
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ASSERT_TRUE(same_numbers(plans[i].element, results[rank][i], plans[i].expected))
          << "sum " << i << " of seed " << seed << " on rank " << rank << " of " << ranks;
      ASSERT_EQ(results[rank][i], results[0][i]) << seed;
    }
}

TEST(BeginSum, HasTheBitsOfAddingOneRankAfterAnother) {
  for (std::uint64_t seed = 0; seed < tries(1000U, 150U) && !HasFailure(); ++seed)
    run_seed(seed, Order::kOrdered);
}

TEST(BeginSum, HasTheBitsOfItsDocumentedOrderWhereItIsFast) {
  for (std::uint64_t seed = 0; seed < tries(1000U, 150U) && !HasFailure(); ++seed)
    run_seed(seed, Order::kFast);
}

TEST(BeginSum, RefusesWhatItCannotAddUp) {
  InProcessRanks({.ranks = 2}).run([](Transport& group) {
    Array array(24);
    const auto begin = [&](std::uint64_t number, Element element, const SumOptions& options) {
      begin_sum(group, number, element, whole(array), options);
    };
    EXPECT_THROW(begin(0, Element::kComplex128, {}), Error);
    EXPECT_THROW(begin(1ull << 32, Element::kFloat32, {}), Error);
    EXPECT_THROW(begin(0, Element::kFloat32, {.piece = 3_B}), Error);
    EXPECT_THROW(begin(0, Element::kInt64, {.factor = 0.5}), Error);
    EXPECT_THROW(begin(0, Element::kFloat32, {.hosts = {"a"}}), Error);
  });
}

TEST(BeginSum, RunsInGroupsThatShareARank) {
  InProcessRanks({.ranks = 5, .most_delay = std::chrono::microseconds(9)}).run([](Transport& job) {
    const auto low = [&] { return transport::make_group(job, {Rank(2), Rank(0), Rank(1)}); };
    const auto high = [&] { return transport::make_group(job, {Rank(4), Rank(2), Rank(3)}); };
    std::vector<std::unique_ptr<Transport>> groups;
    if (job.rank() <= Rank(2)) groups.push_back(low());
    if (job.rank() >= Rank(2)) groups.push_back(high());
    const std::uint64_t own = 1ull << job.rank().value();
    std::vector<Array> arrays;
    std::vector<std::unique_ptr<Sum>> sums;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      Array& array = arrays.emplace_back(8);
      std::memcpy(array.data(), &own, 8);
      sums.push_back(begin_sum(*groups[i], 0, Element::kInt64, whole(array)));
    }
    drive(job, sums);
    EXPECT_EQ(number_at<std::uint64_t>(arrays.front(), 0), job.rank() <= Rank(2) ? 7u : 28u);
    EXPECT_EQ(number_at<std::uint64_t>(arrays.back(), 0), job.rank() >= Rank(2) ? 28u : 7u);
  });
}

TEST(BeginSum, EndsOnAllRanksWhereOneDies) {
  for (std::uint64_t after = 0; after < 24; ++after) {
    int ended = 0;
    InProcessRanks ranks({.ranks = 4,
                          .seed = after,
                          .most_delay = std::chrono::microseconds(9),
                          .sends_wait = after % 2 == 0,
                          .death = InProcessOptions::Death{Rank(2), after}});
    const auto body = [&](Transport& group) {
      Array array(4096);
      try {
        add_up_now(group, Element::kFloat32, array, {.piece = 256_B});
      } catch (const TransportError&) {
        ++ended;
        throw;
      }
    };
    EXPECT_THROW(ranks.run(body), TransportError) << after;
    EXPECT_EQ(ended, 3) << after;
  }
}

}  // namespace
}  // namespace spillway::allreduce
