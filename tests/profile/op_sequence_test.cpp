#include "spillway/profile/op_sequence.h"

#include <gtest/gtest.h>

namespace spillway::profile {
namespace {

std::vector<TapeOp> ops_of(const std::vector<std::uint64_t>& signatures) {
  std::vector<TapeOp> ops;
  for (const std::uint64_t signature : signatures) ops.push_back({.signature = signature});
  return ops;
}

std::vector<std::uint64_t> counting(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < count; ++i) numbers.push_back(first + i);
  return numbers;
}

TEST(OpSequence, HashesItsPrefixesAsTheyGrow) {
  const auto ops = ops_of(counting(5, 20));
  const OpSequence sequence(ops);
  std::uint64_t hash = 0;
  for (std::uint32_t length = 0; length <= 20; ++length) {
    EXPECT_EQ(sequence.prefix(length), hash);
    if (length < 20) hash = mix(hash, ops[length].signature);
  }
  EXPECT_EQ(sequence.identity(), hash);
}

TEST(OpSequence, FindsOnlyPlacesThatOccurOnce) {
  std::vector<std::uint64_t> signatures = counting(0, 30);
  const auto loop = counting(0, 10);
  signatures.insert(signatures.end(), loop.begin(), loop.end());
  const OpSequence sequence(ops_of(signatures));
  const auto gram_at = [&](std::size_t end) {
    return OpSequence::gram_hash(std::span<const std::uint64_t, 8>(signatures.data() + end - 7, 8));
  };
  EXPECT_EQ(sequence.find_gram(gram_at(20)), OpIndex{20});
  EXPECT_EQ(sequence.find_gram(gram_at(8)), std::nullopt) << "occurs again at the end";
  EXPECT_EQ(sequence.find_gram(12345), std::nullopt);
}

TEST(FindPeriod, FindsALongStepThatCameTwice) {
  std::vector<std::uint64_t> signatures = counting(1000, 100);  // Initialisation.
  for (int step = 0; step < 2; ++step) {
    const auto one = counting(0, 300);
    signatures.insert(signatures.end(), one.begin(), one.end());
  }
  EXPECT_EQ(find_period(ops_of(signatures), 1), 300U);
  signatures.pop_back();
  EXPECT_EQ(find_period(ops_of(signatures), 1), std::nullopt);
}

TEST(FindPeriod, WantsAShortLoopFourTimes) {
  std::vector<std::uint64_t> signatures = counting(1000, 50);
  for (int round = 0; round < 3; ++round) {
    const auto one = counting(0, 20);
    signatures.insert(signatures.end(), one.begin(), one.end());
  }
  EXPECT_EQ(find_period(ops_of(signatures), 1), std::nullopt);
  const auto one = counting(0, 20);
  signatures.insert(signatures.end(), one.begin(), one.end());
  EXPECT_EQ(find_period(ops_of(signatures), 1), 20U);
  EXPECT_EQ(find_period(ops_of(signatures), 21), std::nullopt);
}

}  // namespace
}  // namespace spillway::profile
