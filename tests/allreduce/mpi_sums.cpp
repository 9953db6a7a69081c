// One rank of a job that adds up drawn arrays of all its ranks, for mpi_sums_test.py.
#include <cstdio>
#include <memory>

#include "drawn_gradients.h"
#include "spillway/transport/group.h"
#include "spillway/transport/mpi.h"

namespace spillway::allreduce {
namespace {

constexpr std::uint64_t kSums = 40;

Array drawn_array(std::uint64_t number, std::uint32_t rank) {
  std::mt19937_64 random(number * 64 + rank);
  const Element element = kElements[number % std::size(kElements)];
  // From some bytes, which travel with their envelopes, to many pieces.
  const std::size_t count = number % 5 == 0 ? 300'000 + number : 7 * number;
  return drawn_gradients(element, count * size_of(element).count(), random);
}

/// Begins all at once, each rank from another one on; the number of wrong results.
int run(transport::Transport& group) {
  const auto notifier = group.make_notifier(transport::Stream::kSums);
  std::vector<Array> arrays(kSums);
  std::vector<std::unique_ptr<Sum>> sums;
  for (std::uint64_t i = 0; i < kSums; ++i) {
    const std::uint64_t number = (i + 11 * group.rank().value()) % kSums;
    arrays[number] = drawn_array(number, group.rank().value());
    const SumOptions options{.order = number % 2 == 0 ? Order::kOrdered : Order::kFast};
    sums.push_back(begin_sum(group, number, kElements[number % std::size(kElements)],
                             {std::span(arrays[number])}, options));
  }
  while (true) {
    std::erase_if(sums, [](const auto& sum) { return sum->advance(); });
    if (sums.empty()) break;
    notifier->wait();
  }
  int wrong = 0;
  for (std::uint64_t number = 0; number < kSums; ++number) {
    const Element element = kElements[number % std::size(kElements)];
    // Another order has other bits, but for integers.
    if (number % 2 != 0 && element != Element::kInt64) continue;
    Array expected = drawn_array(number, 0);
    for (std::uint32_t rank = 1; rank < group.ranks(); ++rank)
      expected = slow_sum(element, expected, drawn_array(number, rank));
    wrong += same_numbers(element, arrays[number], expected) ? 0 : 1;
  }
  return wrong;
}

int run_job() {
  const auto job = transport::make_mpi_transport();
  const std::uint32_t ranks = job->ranks();
  std::vector<Rank> turned;
  for (std::uint32_t i = 0; i < ranks; ++i) turned.push_back(Rank((i + 1) % ranks));
  const int wrong = run(*job) + run(*transport::make_group(*job, turned));
  std::printf("rank %u: %d of %d sums are wrong\n", job->rank().value(), wrong,
              static_cast<int>(kSums));
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace spillway::allreduce

int main() { return spillway::allreduce::run_job(); }
