#include "spillway/phantoms/output_memo.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/alloc_cpu.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "draws.h"
#include "list_call.h"
#include "phantom_calls.h"
#include "result_rules.h"
#include "spillway/phantoms/phantom_memory.h"
#include "spillway/phantoms/trial_memory.h"

namespace spillway::phantoms {
namespace {

c10::OperatorHandle named(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

at::Generator default_generator() { return at::detail::getDefaultCPUGenerator(); }

Tensor first(const torch::jit::Stack& stack) { return stack.front().toTensor(); }
std::vector<Tensor> first_list(const torch::jit::Stack& stack) {
  return stack.front().toTensorVector();
}

class Memo : public ::testing::Test {
 protected:
  torch::jit::Stack made(const c10::OperatorHandle& op, torch::jit::Stack stack) {
    memo_.make(memo_.outputs_of(op, stack), op, stack);
    return stack;
  }
  std::string reason(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
    return memo_.outputs_of(op, arguments).reason;
  }

  OutputMemo memo_{{}};
};

TEST_F(Memo, TakesNoMemoryForWhatItMakes) {
  const auto op = named("aten::mm");
  const torch::jit::Stack arguments = {at::empty({4096, 8}), at::empty({8, 4096})};
  made(op, arguments);  // Learns it: 64 MiB, for as long as that takes.
  const std::size_t before = resident_bytes();
  std::vector<torch::jit::Stack> all;
  for (int i = 0; i < 64; ++i) all.push_back(made(op, arguments));
  constexpr std::size_t kSome = std::size_t{16} << 20;
  EXPECT_LT(resident_bytes(), before + kSome);
  EXPECT_EQ(first(all.back()).sizes(), at::IntArrayRef({4096, 4096}));
}

TEST_F(Memo, LearnsOfFillsForWhichThereIsNoMemory) {
  constexpr std::int64_t kNumbers = std::int64_t{1} << 33;
  const std::vector<std::int64_t> sizes = {kNumbers / 2, 2};
  const at::Generator generator = at::detail::createCPUGenerator(3);
  at::Generator expected = generator.clone();
  const auto drawn =
      first(made(named("aten::rand", "generator"), {sizes, generator, at::kFloat, {}, {}, {}}));
  EXPECT_EQ(drawn.sizes(), at::IntArrayRef(sizes));
  EXPECT_EQ(drawn.storage().nbytes(), 4 * static_cast<std::size_t>(kNumbers));
  first(made(named("aten::normal_"), {drawn, 0.0, 1.0, generator}));
  auto engine = static_cast<at::CPUGeneratorImpl*>(expected.unsafeGetGeneratorImpl())->engine();
  at::mt19937_data_pod state = engine.data();
  skip_draws(state, 2 * kNumbers);
  auto* const moved = static_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl());
  EXPECT_EQ(moved->engine().data().state_, state.state_);
}

TEST_F(Memo, LearnsOfListsFromTheirMembers) {
  const std::vector<Tensor> list = {at::rand({3, 4}), at::rand({5}), at::rand({3, 4}).t(),
                                    at::empty({0})};
  const torch::jit::Stack arguments = {list};
  const auto learned = [&](const c10::OperatorHandle& op) {
    return outputs_by_members(op, arguments, [&](const recompute::ListMembers& members) {
      return memo_.outputs_of(op, recompute::arguments_for(arguments, members));
    });
  };
  EXPECT_FALSE(learned(named("aten::_foreach_sqrt_")));
  const auto op = named("aten::_foreach_sqrt");
  const auto outputs = learned(op);
  ASSERT_TRUE(outputs);
  torch::jit::Stack by_members = arguments;
  memo_.make(*outputs, op, by_members);
  const auto made_of_all = first_list(made(op, arguments));
  const auto made_of_each = first_list(by_members);
  ASSERT_EQ(made_of_each.size(), list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(made_of_each[i].sizes(), made_of_all[i].sizes());
    EXPECT_EQ(made_of_each[i].strides(), made_of_all[i].strides());
    EXPECT_EQ(made_of_each[i].storage().nbytes(), made_of_all[i].storage().nbytes());
  }
}

TEST_F(Memo, MakesPhantomsThatCannotBeRead) {
  for (const std::int64_t size : {1, 8, 1000, 1'000'000}) {
    const auto phantom = first(made(named("aten::neg"), {at::zeros({size})}));
    // Not by an operator: in a forked child its threads are missing, and it waits for them.
    const auto* const bytes = static_cast<const volatile char*>(phantom.storage().data());
    const auto last = static_cast<std::size_t>(size) * sizeof(float) - 1;
    EXPECT_EXIT(static_cast<void>(bytes[0]), ::testing::KilledBySignal(SIGSEGV), "");
    EXPECT_EXIT(static_cast<void>(bytes[last]), ::testing::KilledBySignal(SIGSEGV), "");
  }
}

TEST_F(Memo, GivesAddressesOfEndedPhantomsToLaterOnes) {
  const auto op = named("aten::neg");
  const void* address = first(made(op, {at::zeros({1000})})).storage().data();
  const auto again = first(made(op, {at::zeros({1001})}));
  EXPECT_EQ(again.storage().data(), address);
  const auto other = first(made(op, {at::zeros({1001})}));
  const auto* begin = static_cast<const std::byte*>(other.storage().data());
  const auto* end = static_cast<const std::byte*>(again.storage().data()) + 4004;
  EXPECT_TRUE(begin >= end || begin + 4004 <= again.storage().data());
}

TEST_F(Memo, LearnsEachKindOfCallOnce) {
  const auto op = named("aten::add", "Tensor");
  const auto learned = [&](const Tensor& a, const Tensor& b, const c10::IValue& factor) {
    const std::uint64_t before = memo_.kinds_learned();
    made(op, {a, b, factor});
    return memo_.kinds_learned() - before;
  };
  const Tensor wide = at::zeros({8, 4});
  EXPECT_EQ(learned(wide, wide, 1), 1U);
  EXPECT_EQ(learned(wide, at::ones({8, 4}), 7), 0U);
  EXPECT_EQ(learned(at::ones({9, 4}).slice(0, 1), wide, 1), 0U) << "begins elsewhere";
  EXPECT_EQ(learned(wide, wide, 0.5), 1U) << "a real number";
  EXPECT_EQ(learned(wide, wide, 0.25), 0U);
  EXPECT_EQ(learned(wide, at::zeros({4}), 1), 1U) << "sizes";
  EXPECT_EQ(learned(wide, at::zeros({4, 8}).t(), 1), 1U) << "strides";
  EXPECT_EQ(learned(wide, wide.to(at::kInt), 1), 1U) << "type";
  const at::NoGradGuard no_grad;
  EXPECT_EQ(learned(wide, wide, 1), 1U) << "grad mode";
}

TEST_F(Memo, TellsNumbersApartThatDecideSizes) {
  const auto op = named("aten::arange", "start_step");
  const auto size = [&](const c10::IValue& begin, const c10::IValue& end, const c10::IValue& step) {
    return first(made(op, {begin, end, step, {}, {}, {}, {}})).sizes()[0];
  };
  EXPECT_EQ(size(0, 10, 1), 10);
  EXPECT_EQ(size(0, 11, 1), 11);
  EXPECT_EQ(size(0.0, 1.0, 0.25), 4);
  EXPECT_EQ(size(0.0, 1.0, 0.125), 8);
}

TEST_F(Memo, BeginsAnewWhenItHasManyKinds) {
  OutputMemo small({.hidden_keys = {}, .most_kinds = 4});
  const auto op = named("aten::neg");
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t size = 1; size <= 6; ++size) {
      torch::jit::Stack stack = {at::zeros({size})};
      small.make(small.outputs_of(op, stack), op, stack);
      EXPECT_EQ(first(stack).sizes()[0], size);
    }
  }
  EXPECT_EQ(small.kinds_learned(), 12U);
}

TEST_F(Memo, MovesTheGeneratorOfTheCallOn) {
  const auto op = named("aten::uniform_");
  const Tensor state = default_generator().get_state();
  at::Generator given = at::detail::createCPUGenerator(5);
  at::Generator drawn = given.clone();
  made(op, {at::zeros({1000}), 0.0, 1.0, given});
  at::empty({1000}).uniform_(0, 1, drawn);
  EXPECT_TRUE(at::equal(given.get_state(), drawn.get_state()));
  EXPECT_TRUE(at::equal(default_generator().get_state(), state));
}

TEST_F(Phantoms, PartsOfCompositesInInferenceMode) {
  const c10::InferenceMode inference;
  const Tensor x = rnd({6, 8});
  check({
      {"aten::mm",
       [&] {
         at::linear(x, rnd({4, 8}), {});
       }},
      {"aten::clone",
       [&] {
         at::reshape(x.t(), {6, 8});
       }},
      {"aten::bernoulli_.float", [&] { at::dropout(x, 0.5, true); }},
  });
  EXPECT_EQ(OutputMemo({}).outputs_of(named("aten::linear"), torch::jit::Stack{x, x, {}}).making,
            Making::kParts);
}

/// Small normal tensors take a number that an earlier pair has left, or leave one.
TEST_F(Memo, KeepsTheOtherNumberOfAPair) {
  const auto op = named("aten::normal_");
  at::manual_seed(3);
  Tensor real = at::empty({3});
  for (int i = 0; i < 5; ++i) {
    const Tensor before = default_generator().get_state();
    made(op, {at::empty({3}), 0.0, 1.0, {}});
    const Tensor moved_on = default_generator().get_state();
    default_generator().set_state(before);
    real.normal_();
    EXPECT_TRUE(at::equal(default_generator().get_state(), moved_on)) << i;
  }
}

TEST_F(Memo, RefusesByName) {
  const Tensor x = at::zeros({4, 4});
  EXPECT_EQ(reason(named("aten::nonzero"), {x}),
            "returns as many values as its arguments' values tell");
  EXPECT_EQ(reason(named("aten::_local_scalar_dense"), {x}), "reads values");
  EXPECT_EQ(reason(named("aten::equal"), {x, x}), "reads values");
  EXPECT_EQ(reason(named("aten::t"), {x}), "makes views");
  EXPECT_EQ(reason(named("aten::resize_"), {x, std::vector<std::int64_t>{8}, {}}),
            "copies its argument into other memory");
  EXPECT_EQ(reason(named("aten::neg"), {x.to_sparse()}), "takes a tensor that is not strided");
  EXPECT_EQ(reason(named("aten::_to_sparse"), {x, {}, {}, {}}),
            "returns a tensor that is not strided");
  EXPECT_EQ(memo_.outputs_of(named("aten::t"), torch::jit::Stack{x}).making, Making::kNoBytes);
  EXPECT_EQ(memo_.outputs_of(named("aten::nonzero"), torch::jit::Stack{x}).making, Making::kValues);
}

TEST_F(Memo, TellsMasksFromNumbersAmongIndices) {
  const auto op = named("aten::index", "Tensor");
  const auto with = [](const Tensor& index) {
    return c10::List<std::optional<Tensor>>({std::optional<Tensor>(index)});
  };
  const Tensor x = at::zeros({4, 4});
  EXPECT_EQ(reason(op, {x, with(at::zeros({2}, at::kLong))}), "");
  EXPECT_EQ(reason(op, {x.to(at::kByte), with(at::zeros({2}, at::kLong))}), "") << "a picture";
  EXPECT_EQ(reason(op, {x, with(at::zeros({4}, at::kBool))}),
            "returns as many values as its mask tells");
}

TEST_F(Memo, RefusesWhatThrows) {
  const torch::jit::Stack arguments = {at::zeros({4, 4}), at::zeros({5, 4})};
  EXPECT_THAT(reason(named("aten::mm"), arguments), ::testing::HasSubstr("mat1 and mat2 shapes"));
  torch::jit::Stack stack = arguments;
  EXPECT_THROW(memo_.make(memo_.outputs_of(named("aten::mm"), stack), named("aten::mm"), stack),
               c10::Error);
}

TEST_F(Memo, LeavesSentencesAboutWrongConvolutionsToLibTorch) {
  using Numbers = std::vector<std::int64_t>;
  const auto refusal_of = [&](const Numbers& stride) {
    return reason(named("aten::convolution"),
                  {at::zeros({1, 1, 4, 4}), at::zeros({1, 1, 2, 2}), Tensor(), stride,
                   Numbers{0, 0}, Numbers{1, 1}, false, Numbers{0, 0}, 1});
  };
  EXPECT_THAT(refusal_of({0, 0}), ::testing::HasSubstr("non-positive stride"));
  EXPECT_THAT(refusal_of({1, 1, 1}), ::testing::HasSubstr("expected stride"));
  EXPECT_EQ(refusal_of({1, 1}), "");
}

TEST_F(Memo, RefusesOutputsThatAreResized) {
  const Tensor x = at::zeros({4, 4});
  const auto op = named("aten::add", "out");
  EXPECT_EQ(reason(op, {x, x, 1, at::empty({0})}), "exchanges the memory of its argument");
  EXPECT_EQ(reason(op, {x, x, 1, at::empty({4, 4})}), "");
}

/// Hands out `TrialMemory` while a kernel is on trial, and counts what is for the program's own
/// tensors. Says of each large block on trial whether it loses its bytes. While it lives, all
/// tensors come from it.
class TrialAllocator final : public c10::Allocator {
 public:
  TrialAllocator() { c10::SetAllocator(c10::kCPU, this); }
  ~TrialAllocator() override { c10::SetAllocator(c10::kCPU, &usual_); }
  TrialAllocator(const TrialAllocator&) = delete;
  TrialAllocator& operator=(const TrialAllocator&) = delete;

  c10::DataPtr allocate(std::size_t bytes) override {
    if (!is_on_trial()) {
      ++own;
      return usual_.allocate(bytes);
    }
    void* const memory = TrialMemory::instance().allocate(bytes);
    if (bytes >= kLarge) {
      if (kept == nullptr) kept = static_cast<int*>(TrialMemory::instance().allocate(bytes));
      losing.push_back(loses(static_cast<volatile int*>(memory)));
    }
    return {memory, memory, &release, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  static bool loses(volatile int* block) {
    *block = 1;
    TrialMemory::instance().discard();
    return *block == 0;
  }

  static constexpr std::size_t kLarge = std::size_t{16} << 20;
  int own = 0;
  std::vector<bool> losing;
  int* kept = nullptr;  ///< Like the first large block, from its trial; nobody frees it.

 private:
  static void release(void* block) {
    if (!TrialMemory::instance().free(block)) c10::free_cpu(block);
  }

  c10::Allocator& usual_ = *c10::GetAllocator(c10::kCPU);
};

TEST_F(Memo, TellsAllocatorsOfItsTrials) {
  const Tensor x = at::zeros({8, 8});
  TrialAllocator allocator;
  made(named("aten::mm"), {x, x});
  EXPECT_EQ(allocator.own, 0);
  const Tensor y = at::mm(x, x);
  EXPECT_GT(allocator.own, 0);
  EXPECT_THAT(allocator.losing, ::testing::IsEmpty());
}

// A rank whose stage held 0.8 GiB took 4 GiB while it learned what convolutions of 1 GiB make.
TEST_F(Memo, LetsLargeResultsLoseTheirBytes) {
  using Numbers = std::vector<std::int64_t>;
  const Tensor x = at::zeros({2048, 2}), wide = at::zeros({2, 2049});
  const Tensor pictures = at::zeros({2, 3, 64, 64}), filters = at::zeros({512, 3, 3, 3});
  TrialAllocator allocator;
  made(named("aten::mm"), {x, wide});
  made(named("aten::addmm"), {at::zeros({2049}), x, wide, 1, 1});
  made(named("aten::bmm"), {at::zeros({2, 1024, 2}), at::zeros({2, 2, 2049})});
  EXPECT_THAT(allocator.losing, ::testing::ElementsAre(true, true, true));
  allocator.losing.clear();
  made(named("aten::convolution"), {pictures, filters, Tensor(), Numbers{1, 1}, Numbers{1, 1},
                                    Numbers{1, 1}, false, Numbers{0, 0}, 1});
  EXPECT_THAT(allocator.losing, ::testing::Contains(true));
  allocator.losing.clear();
  made(named("aten::convolution"), {pictures, at::zeros({3, 512, 3, 3}), Tensor(), Numbers{1},
                                    Numbers{1}, Numbers{1}, true, Numbers{0}, 1});
  EXPECT_THAT(allocator.losing, ::testing::Contains(true));
  // As with a kernel that keeps a block for its next call.
  EXPECT_FALSE(TrialAllocator::loses(allocator.kept));
  int own = 0;
  EXPECT_FALSE(TrialMemory::instance().free(&own));
  EXPECT_TRUE(TrialMemory::instance().free(allocator.kept));
  EXPECT_FALSE(TrialMemory::instance().free(allocator.kept));
}

TEST_F(Memo, LetsNoOtherBlockLoseItsBytes) {
  const Tensor row = at::zeros({(std::int64_t{1} << 22) + 1});
  TrialAllocator allocator;
  made(named("aten::sort"), {row, -1, false});
  EXPECT_THAT(allocator.losing, ::testing::Each(false));
  EXPECT_THAT(allocator.losing, ::testing::Not(::testing::IsEmpty()));
  allocator.losing.clear();
  // A kernel's own buffer.
  TrialMemory::instance().begin_trial({TrialAllocator::kLarge});
  const c10::DataPtr other = allocator.allocate(TrialAllocator::kLarge + 64);
  const c10::DataPtr result = allocator.allocate(TrialAllocator::kLarge);
  TrialMemory::instance().end_trial();
  EXPECT_THAT(allocator.losing, ::testing::ElementsAre(false, true));
  TrialMemory::instance().free(allocator.kept);
}

// A sort whose numbers change runs past its end.
TEST(ResultRules, KnowWhichKernelsIgnoreValues) {
  for (const char* name : {"aten::mm", "aten::convolution", "aten::convolution_backward",
                           "aten::native_batch_norm_backward", "aten::cat"})
    EXPECT_TRUE(ResultRules(named(name)).ignores_values()) << name;
  for (const char* name : {"aten::sort", "aten::embedding", "aten::topk", "aten::cumsum"})
    EXPECT_FALSE(ResultRules(named(name)).ignores_values()) << name;
}

TEST_F(Memo, UsesGivenMemory) {
  OutputMemo usual({.hidden_keys = {}, .memory = c10::GetAllocator(c10::kCPU)});
  torch::jit::Stack stack = {at::zeros({4})};
  usual.make(usual.outputs_of(named("aten::neg"), stack), named("aten::neg"), stack);
  EXPECT_TRUE(at::equal(first(stack).fill_(3), at::full({4}, 3.F)));
}

}  // namespace
}  // namespace spillway::phantoms
