#include "operator_facts.h"

#include <gmock/gmock.h>
#include <torch/library.h>

#include <memory>
#include <optional>

#include "spillway/recompute/operator_rules.h"

namespace spillway::torch_binding {
namespace {

using testing::ElementsAre;

OperatorFacts facts_of(const char* name, const char* overload = "") {
  return OperatorFacts(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
}

TEST(OperatorFacts, ViewsTouchNothing) {
  for (const char* name : {"aten::view", "aten::t", "aten::permute", "aten::unsqueeze",
                           "aten::as_strided", "aten::detach", "aten::alias"})
    EXPECT_TRUE(facts_of(name).touches_nothing) << name;
  EXPECT_TRUE(facts_of("aten::select", "int").touches_nothing);
  EXPECT_TRUE(facts_of("aten::split", "Tensor").touches_nothing);
}

TEST(OperatorFacts, WhoOnlyAsksWhereATensorIsTouchesNothing) {
  for (const char* name : {"aten::is_pinned", "aten::record_stream"})
    EXPECT_TRUE(facts_of(name).touches_nothing) << name;
}

TEST(OperatorFacts, RunningStatisticsAreWrittenWhateverTheSchemaSays) {
  EXPECT_THAT(facts_of("aten::native_batch_norm").accesses,
              ElementsAre(Access::kRead, Access::kRead, Access::kRead, Access::kWrite,
                          Access::kWrite, Access::kRead, Access::kRead, Access::kRead));
}

TEST(OperatorFacts, WhatMayCopyOrComputeTouchesItsArguments) {
  for (const char* name : {"aten::contiguous", "aten::reshape", "aten::mm", "aten::relu_",
                           "aten::cat", "aten::_to_copy", "aten::resize_"})
    EXPECT_FALSE(facts_of(name).touches_nothing) << name;
}

TEST(OperatorFacts, TellHowEachArgumentIsUsed) {
  EXPECT_THAT(facts_of("aten::add_", "Tensor").accesses,
              ElementsAre(Access::kWrite, Access::kRead, Access::kRead));
  EXPECT_THAT(facts_of("aten::mm", "out").accesses,
              ElementsAre(Access::kRead, Access::kRead, Access::kResult));
  EXPECT_EQ(facts_of("aten::view").accesses.front(), Access::kView);
  // Its result may be a copy, whatever the schema says of a view.
  EXPECT_EQ(facts_of("aten::reshape").accesses.front(), Access::kRead);
}

TEST(OperatorFacts, KnowWhoHandsOutMemoryOnlyAndWhoCopiesAllOfIt) {
  EXPECT_FALSE(facts_of("aten::empty", "memory_format").fills_outputs);
  EXPECT_FALSE(facts_of("aten::new_empty").fills_outputs);
  EXPECT_TRUE(facts_of("aten::zeros").fills_outputs);
  EXPECT_TRUE(facts_of("aten::zeros_like").makes_blanks);
  EXPECT_TRUE(facts_of("aten::empty_like").makes_blanks);
  EXPECT_FALSE(facts_of("aten::clone").makes_blanks);
  EXPECT_TRUE(facts_of("aten::resize_").uses_whole_storages);
  EXPECT_FALSE(facts_of("aten::mm").uses_whole_storages);
}

TEST(OperatorFacts, CollectivesGoOn) {
  for (const char* name : {"c10d::allreduce_", "c10d::broadcast_", "_c10d_functional::all_reduce"})
    EXPECT_TRUE(facts_of(name).goes_on) << name;
  EXPECT_FALSE(facts_of("aten::sum").goes_on);
  EXPECT_TRUE(facts_of("c10d::allgather_").fills_in_secret);
  EXPECT_FALSE(facts_of("_c10d_functional::all_reduce").fills_in_secret);
}

TEST(OperatorFactsCache, GivesTheSameFactsAgain) {
  OperatorFactsCache cache;
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "");
  EXPECT_EQ(&cache.of(op), &cache.of(op));
}

/// As static objects of a library are made where it is loaded, and end where it is unloaded.
std::unique_ptr<torch::Library> load(torch::Library::Kind kind) {
  const bool has_kernels = kind == torch::Library::IMPL;
  const auto key = has_kernels ? std::optional(c10::DispatchKey::CPU) : std::nullopt;
  return std::make_unique<torch::Library>(kind, "spillway_test", key, __FILE__, __LINE__);
}

TEST(OperatorFactsCache, KnowsAnOperatorFromOneThatHasEndedAtItsAddress) {
  OperatorFactsCache cache;
  const auto find = [] {
    return c10::Dispatcher::singleton().findSchemaOrThrow("spillway_test::change", "");
  };
  // The kernel of another library keeps the place of the operator.
  const auto kernels = load(torch::Library::IMPL);
  kernels->impl("change", torch::CppFunction::makeFallthrough());
  auto first = load(torch::Library::DEF);
  first->def("change(Tensor x) -> ()");
  const c10::FunctionSchema* const schema = &find().schema();
  EXPECT_THAT(cache.of(find()).accesses, ElementsAre(Access::kRead));
  EXPECT_FALSE(recompute::rules_of(find()).returns_arguments);
  first.reset();
  const auto second = load(torch::Library::DEF);
  second->def("change(Tensor(a!) x) -> ()");
  ASSERT_EQ(&find().schema(), schema);
  EXPECT_THAT(cache.of(find()).accesses, ElementsAre(Access::kWrite));
  EXPECT_TRUE(recompute::rules_of(find()).returns_arguments);
}

}  // namespace
}  // namespace spillway::torch_binding
