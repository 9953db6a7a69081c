#include "spillway/pipeline/ownership/control_hash.h"
#include "support/golden_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace spillway::pipeline {
namespace {

void call(ControlHash& hash, std::string_view name, const std::vector<std::uint64_t>& arguments) {
  hash.begin_call(name);
  for (const std::uint64_t argument : arguments) hash.add(argument);
  hash.end_call();
}

void call_often(ControlHash& hash, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) call(hash, "aten::mm", {i, 2, 3});
}

std::string difference(const ControlHash& here, const ControlHash& there) {
  return first_difference({"rank 0", here.latest()}, {"rank 1", there.latest()})
      .value_or(Difference{})
      .text;
}

TEST(ControlHash, IsEqualForEqualCallsWhereverTheirNamesLie) {
  ControlHash here, there;
  const std::string copy = "aten::mm";
  call(here, "aten::mm", {1, 2});
  call(there, copy, {1, 2});
  EXPECT_EQ(here.value(), there.value());
  EXPECT_EQ(difference(here, there), "");
}

TEST(ControlHash, TellsCallsApartByNameArgumentsAndOrder) {
  ControlHash base, name, value, order, count, boundary;
  call(base, "mm", {1, 2});
  call(name, "bmm", {1, 2});
  call(value, "mm", {1, 3});
  call(order, "mm", {2, 1});
  call(count, "mm", {1, 2, 0});
  call(boundary, "mm", {1});
  call(boundary, "", {2});
  for (const ControlHash* const other : {&name, &value, &order, &count, &boundary})
    EXPECT_NE(base.value(), other->value());
}

TEST(ControlHash, NamesTheArgumentWhereRanksWentApart) {
  GoldenPart golden;
  ControlHash here, there;
  call_often(here, 5);
  call_often(there, 5);
  call(here, "aten::dropout", {1, 7, 3});
  call(there, "aten::dropout", {1, 8, 3});
  call_often(here, 3);
  call_often(there, 3);
  golden.add(difference(here, there));
}

TEST(ControlHash, NamesBothCallsWhereTheyDiffer) {
  GoldenPart golden;
  ControlHash here, there;
  call(here, "aten::relu", {1});
  call(there, "aten::gelu", {1});
  golden.add(difference(here, there));
}

TEST(ControlHash, TellsOfArgumentsBeyondThoseThatItTellsApart) {
  GoldenPart golden;
  ControlHash here, there;
  std::vector<std::uint64_t> many(ControlHash::kArguments + 5, 1);
  call(here, "aten::cat", many);
  many.back() = 2;
  call(there, "aten::cat", many);
  golden.add(difference(here, there));
  many.push_back(2);
  ControlHash longer;
  call(longer, "aten::cat", many);
  golden.add(difference(here, longer));
}

TEST(ControlHash, TellsOfDataThatDiffer) {
  ControlHash here, there;
  for (ControlHash* const hash : {&here, &there}) {
    hash->begin_call("aten::addmm");
    hash->add(1);
    hash->add_data(hash == &here ? 5 : 6);
    hash->end_call();
  }
  EXPECT_NE(here.value(), there.value());
  const auto found = first_difference({"rank 0", here.latest()}, {"rank 1", there.latest()});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->is_of_data);
  EXPECT_EQ(found->text,
            "the bytes that call 0, aten::addmm, reads are others on rank 0 than on rank 1");
}

TEST(ControlHash, TellsOfArgumentsBeforeData) {
  GoldenPart golden;
  ControlHash here, there;
  for (ControlHash* const hash : {&here, &there}) {
    hash->begin_call("aten::addmm");
    hash->add(hash == &here ? 1 : 2);
    hash->add_data(hash == &here ? 5 : 6);
    hash->end_call();
  }
  const auto found = first_difference({"rank 0", here.latest()}, {"rank 1", there.latest()});
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->is_of_data);
  golden.add(found->text);
}

TEST(ControlHash, SaysWhereItRemembersTooLittle) {
  GoldenPart golden;
  ControlHash here, there;
  call(here, "a", {1});
  call(there, "b", {1});
  call_often(here, ControlHash::kKept);
  call_often(there, ControlHash::kKept);
  golden.add(difference(here, there));
  ControlHash ahead;
  call_often(ahead, 3 * ControlHash::kKept);
  golden.add(difference(here, ahead));
}

TEST(ControlHash, ComparesWhatBothHaveDoneWhereOneIsAhead) {
  ControlHash here, ahead;
  call_often(here, 10);
  call_often(ahead, 20);
  EXPECT_EQ(difference(here, ahead), "");
}

TEST(ControlHash, KnowsWhatItWasAfterEarlierCalls) {
  ControlHash hash;
  std::vector<std::uint64_t> values{hash.value()};
  constexpr std::uint64_t kCalls = ControlHash::kKept + 100;
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    call(hash, "aten::mm", {i});
    values.push_back(hash.value());
  }
  for (std::uint64_t calls = 101; calls <= kCalls; ++calls)
    ASSERT_EQ(hash.value_after(calls), values[calls]);
  EXPECT_EQ(hash.value_after(0), values[0]);
  EXPECT_EQ(hash.value_after(100), std::nullopt);
  EXPECT_EQ(hash.value_after(kCalls + 1), std::nullopt);
  EXPECT_EQ(hash.latest(3).front().index, kCalls - 3);
}

}  // namespace
}  // namespace spillway::pipeline
