#include "spillway/recompute/replay_engine.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "checked_calls.h"
#include "odd_operators.h"
#include "spillway/base/error.h"
#include "spillway/recompute/operator_rules.h"

namespace spillway::recompute {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

void* address_of(StorageId id) { return PagedTable::instance().address_of(id); }

StorageId key_of(const Tensor& tensor) {
  return PagedTable::instance().find(tensor.const_data_ptr()).id;
}

void spoil(const Tensor& tensor) {
  std::memset(const_cast<void*>(tensor.storage().data()), 0xA5, tensor.storage().nbytes());
}

class Engine : public ::testing::Test {
 protected:
  Engine() {
    PagedTable::instance();
    register_odd_operators();
    at::manual_seed(7);
  }

  /// Records the operators of `trainer`.
  CallsOfTrainer recorded(const std::function<void()>& trainer) {
    CallsOfTrainer calls(*engine_);
    const Watched watched(calls);
    trainer();
    return calls;
  }

  /// Why the last operator of `trainer` cannot run again.
  std::string objection(const std::function<void()>& trainer) {
    return recorded(trainer).entries.back().objection;
  }

  /// What a verification says of an odd operator.
  std::string verdict(const std::string& name) {
    const Tensor x = at::randn({2000});
    const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow(("aten::odd_" + name).c_str(), "");
    auto record = engine_->record(op, {x});
    engine_->prepare_verification(*record);
    std::vector<c10::IValue> results;
    for (const Tensor& result : call_odd(name, {x})) results.emplace_back(result);
    EXPECT_TRUE(engine_->complete(*record, results));
    return engine_->verify(*record, results);
  }

  std::shared_ptr<ReplayEngine> engine_ = make_engine();
};

class Rules : public Engine {
 protected:
  static std::string of(const char* name, const char* overload = "") {
    return rules_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)).objection;
  }
};

TEST_F(Rules, RefuseWhatComputesNothing) {
  for (const char* name : {"aten::view", "aten::t", "aten::detach", "aten::_unsafe_view"})
    EXPECT_EQ(of(name), "makes a view") << name;
  EXPECT_EQ(of("aten::empty", "memory_format"), "hands out memory without filling it");
  EXPECT_EQ(of("aten::empty_like"), "hands out memory without filling it");
  EXPECT_EQ(of("aten::new_empty_strided"), "hands out memory without filling it");
  for (const char* name : {"aten::zeros_like", "aten::ones_like", "aten::full_like",
                           "aten::new_zeros", "aten::new_ones", "aten::new_full", "aten::zero_"})
    EXPECT_EQ(of(name), "makes memory ready that may be filled by hand") << name;
  EXPECT_EQ(of("aten::fill_", "Scalar"), "makes memory ready that may be filled by hand");
  EXPECT_EQ(of("aten::resize_"), "exchanges the memory of its argument");
  EXPECT_EQ(of("aten::set_", "source_Storage"), "exchanges the memory of its argument");
  if (c10::Dispatcher::singleton().findSchema({"aten::shallow_copy_data_", ""})) {  // Since 2.14.
    EXPECT_EQ(of("aten::shallow_copy_data_"), "exchanges the memory of its argument");
  }
  EXPECT_EQ(of("aten::linear"), "stands for other operators");
}

TEST_F(Rules, RefuseWhatDependsOnValues) {
  EXPECT_EQ(of("aten::_local_scalar_dense"), "reads values");
  EXPECT_THAT(of("aten::nonzero"), HasSubstr("as many values as"));
  EXPECT_THAT(of("aten::masked_select"), HasSubstr("as many values as"));
  EXPECT_EQ(of("aten::equal"), "reads values");
  EXPECT_EQ(of("aten::as_strided_scatter"), "looks at its storage past its tensor");
}

TEST_F(Rules, RefuseWhatCanOnlyDrawFromTheDefaultGenerator) {
  const std::string reason = "draws from the default generator, as other threads may meanwhile";
  for (const char* name : {"aten::native_dropout", "aten::rand_like", "aten::randn_like"})
    EXPECT_EQ(of(name), reason) << name;
  EXPECT_EQ(of("aten::randint_like"), reason);
  EXPECT_EQ(of("aten::bernoulli"), "");
  EXPECT_EQ(of("aten::_scaled_dot_product_flash_attention_for_cpu"), "");
}

TEST_F(Rules, TellWhatIsLeftToTheTrainerToFill) {
  const auto makes_blanks = [](const char* name) {
    return rules_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, "")).makes_blanks;
  };
  for (const char* name : {"aten::empty_like", "aten::zeros_like", "aten::ones_like",
                           "aten::full_like", "aten::new_zeros", "aten::new_full"})
    EXPECT_TRUE(makes_blanks(name)) << name;
  for (const char* name : {"aten::clone", "aten::relu", "aten::fill_diagonal_"})
    EXPECT_FALSE(makes_blanks(name)) << name;
}

TEST_F(Rules, RefuseWhatIsNotKnown) {
  EXPECT_EQ(of("quantized::add"), "is not one of LibTorch's own");
  EXPECT_EQ(of("aten::cudnn_convolution"), "has no kernel for the CPU");
  EXPECT_EQ(of("aten::mkldnn_rnn_layer"), "returns workspace that it does not fill");
  EXPECT_EQ(of("aten::rrelu_with_noise"), "writes arguments beside its results");
}

TEST_F(Rules, AllowWhatComputes) {
  for (const char* name : {"aten::convolution", "aten::convolution_backward", "aten::addmm",
                           "aten::native_batch_norm", "aten::silu_backward", "aten::_fused_adam_",
                           "aten::native_dropout_backward", "aten::gelu_", "aten::_to_copy"})
    EXPECT_EQ(of(name), "") << name;
  EXPECT_EQ(of("aten::_foreach_add_", "List"), "");
  EXPECT_EQ(of("aten::mm", "out"), "");
}

TEST_F(Rules, TellHowArgumentsAreUsed) {
  using ::testing::ElementsAre;
  const auto uses = [](const char* name, const char* overload) {
    return rules_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)).uses;
  };
  EXPECT_THAT(uses("aten::add_", "Tensor"),
              ElementsAre(ArgumentUse::kReadWrite, ArgumentUse::kRead, ArgumentUse::kRead));
  EXPECT_EQ(uses("aten::mm", "out").back(), ArgumentUse::kOverwrite);
  EXPECT_EQ(uses("aten::native_batch_norm", "")[3], ArgumentUse::kUndeclaredWrite);
  EXPECT_EQ(uses("aten::_native_batch_norm_legit", "")[4], ArgumentUse::kUndeclaredWrite);
}

TEST_F(Rules, LeaveOutArgumentsThatAreNotRead) {
  const Tensor x = at::randn({4, 3, 8, 8}), grad = at::randn({4, 3, 8, 8});
  const Tensor mean = at::randn({3}), other = at::rand({3}) + 1;
  const auto backward =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::native_batch_norm_backward", "");
  for (const bool trains : {true, false}) {
    const torch::jit::Stack all{grad, x,     mean,   mean, other,
                                mean, other, trains, 1e-5, std::vector<bool>{true, true, true}};
    torch::jit::Stack whole = all, less = all;
    leave_out_unread(backward, less);
    ASSERT_EQ(less.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(less[i].isNone(), trains && (i == 3 || i == 4)) << i;
    backward.callBoxed(whole);
    backward.callBoxed(less);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(at::equal(whole[i].toTensor(), less[i].toTensor())) << i;
  }
}

TEST_F(Engine, RefusesArgumentsThatCannotBeKept) {
  const Tensor x = at::randn({64, 64});
  EXPECT_EQ(objection([&] { at::relu(x.to_sparse()); }), "its argument 'self' is not strided");
  EXPECT_EQ(objection([&] { at::arange(4096, at::kMeta); }),
            "its argument 'device' names another device");
  EXPECT_EQ(objection([&] {
              at::index(x, {at::randn({64, 64}) > 0});
            }),
            "its argument 'indices' holds a mask, by which the size of the result follows from "
            "values");
  EXPECT_EQ(objection([&] { x.clone().index_put_({at::arange(64)}, x, /*accumulate=*/true); }),
            "it adds up in an order that differs each time");
}

TEST_F(Engine, RefusesCallsInInferenceMode) {
  const Tensor x = at::randn({64, 64});
  const auto relu = c10::Dispatcher::singleton().findSchemaOrThrow("aten::relu", "");
  std::string why;
  const c10::InferenceMode inference;
  EXPECT_FALSE(engine_->record(relu, {x}, &why));
  EXPECT_EQ(why, "it runs in inference mode");
}

// Its replay called the mode a second time, or on a thread that had none.
TEST_F(Engine, RefusesCallsThatAPythonModeSees) {
  const Tensor x = at::randn({64, 64});
  const auto relu = c10::Dispatcher::singleton().findSchemaOrThrow("aten::relu", "");
  for (const auto key : {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}) {
    std::string why;
    const c10::impl::IncludeDispatchKeyGuard mode(key);
    EXPECT_FALSE(engine_->record(relu, {x}, &why));
    EXPECT_EQ(why, "a Python dispatch mode sees it, and would see its second run");
    // Within the mode itself.
    const c10::impl::ExcludeDispatchKeyGuard handler(key);
    EXPECT_TRUE(engine_->record(relu, {x}));
  }
}

TEST_F(Engine, RefusesDrawsFromTheDefaultGenerator) {
  const std::string reason = "it draws from the default generator, as other threads may meanwhile";
  const Tensor x = at::rand({64, 64});
  EXPECT_EQ(objection([&] { at::bernoulli(x); }), reason);
  EXPECT_EQ(objection([&] { x.clone().normal_(0, 1); }), reason);
  EXPECT_EQ(objection([&] { x.clone().normal_(0, 1, at::detail::getDefaultCPUGenerator()); }),
            reason);
  EXPECT_EQ(objection([&] { at::bernoulli(x, at::detail::createCPUGenerator(5)); }), "");
}

TEST_F(Engine, RefusesCallsInParallelRegions) {
  // LibTorch's own OpenMP: this file is compiled without, and another copy would know of nothing.
  using Body = void (*)(void*);
  const auto parallel = reinterpret_cast<void (*)(Body, void*, unsigned, unsigned)>(
      ::dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  if (parallel == nullptr) GTEST_SKIP() << "LibTorch has no GNU OpenMP";
  const Tensor x = at::randn({64, 64});
  std::atomic<int> refused = 0;
  const std::function<void()> record = [&] {
    const auto relu = c10::Dispatcher::singleton().findSchemaOrThrow("aten::relu", "");
    std::string why;
    if (!engine_->record(relu, {x}, &why) && why == "it runs in a parallel region") ++refused;
  };
  parallel([](void* body) { (*static_cast<const std::function<void()>*>(body))(); },
           const_cast<std::function<void()>*>(&record), 2, 0);
  EXPECT_EQ(refused.load(), 2);
}

TEST_F(Engine, DropsRecordsThatHelpNobody) {
  const Tensor x = at::randn({64, 64});
  EXPECT_EQ(objection([&] { at::sum(x); }), "nothing that it made is paged");
  const Tensor out = at::empty({0});
  EXPECT_EQ(objection([&] {
              Tensor to = out;
              at::relu_out(to, x);
            }),
            "it gave its argument other memory");
}

TEST_F(Engine, ListsInputsAndOutputsByStorage) {
  Tensor x = at::randn({64, 64});
  const Tensor y = at::randn({64, 64});
  Tensor made;
  auto calls = recorded([&] {
    x.addmm_(y, y.t());
    made = std::get<0>(at::native_layer_norm(x.slice(0, 0, 32), {64}, {}, {}, 1e-5));
  });
  const auto& inputs = calls.of("aten::addmm_").record->inputs;
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs[0].id, key_of(x));
  EXPECT_TRUE(inputs[0].written);
  EXPECT_EQ(inputs[1].id, key_of(y));
  EXPECT_FALSE(inputs[1].written);
  EXPECT_TRUE(calls.of("aten::addmm_").record->outputs.empty());
  const auto& outputs = calls.of("aten::native_layer_norm").record->outputs;
  ASSERT_EQ(outputs.size(), 1u);  // The means and deviations are small.
  EXPECT_EQ(outputs[0].id, key_of(made));
  EXPECT_EQ(outputs[0].bytes, Bytes(32 * 64 * 4));
}

TEST_F(Engine, RecordsKeepNoPagedStorageAlive) {
  const std::size_t before = PagedTable::instance().count();
  CallsOfTrainer calls(*engine_);
  {
    const Watched watched(calls);
    const Tensor x = at::randn({64, 64});
    at::relu(at::cat({x, at::mm(x, x)})).mul_(2);
    EXPECT_GT(PagedTable::instance().count(), before);
  }
  EXPECT_GE(calls.entries.size(), 5u);
  EXPECT_EQ(PagedTable::instance().count(), before);
  EXPECT_EQ(engine_->bytes_held(), Bytes(0));
}

TEST_F(Engine, BringsBackAChainThroughAnInPlaceOperator) {
  const Tensor x = at::randn({2, 8, 16, 16});
  const Tensor weight = at::randn({8, 8, 3, 3});
  Tensor last;
  auto calls = recorded([&] {
    const Tensor first = at::convolution(x, weight, {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1);
    last = std::get<0>(at::native_batch_norm(first, {}, {}, {}, {}, true, 0.1, 1e-5)).relu_();
  });
  const Tensor right = last.clone();
  spoil(last);

  // What lies between is gone for good, and its stand-in lies elsewhere.
  const auto between = calls.of("aten::convolution").record->run(address_of);
  ASSERT_EQ(between.size(), 1u);
  const auto with_stand_in = [&](StorageId id) {
    return id == between[0].id ? between[0].address : address_of(id);
  };
  replay_in_place(*calls.of("aten::native_batch_norm").record, with_stand_in);
  calls.of("aten::relu_").record->run(address_of);
  EXPECT_TRUE(at::equal(last, right));
}

// Its results are promised before it has run at all; it then runs as if at the place of its record.
TEST_F(Engine, RunsACallForTheFirstTimeLater) {
  at::Generator own = at::detail::createCPUGenerator(5);
  const auto bernoulli = c10::Dispatcher::singleton().findSchemaOrThrow("aten::bernoulli", "");
  const Tensor x = at::rand({64, 64});
  auto call = engine_->record(bernoulli, {x, own});
  ASSERT_TRUE(call);
  EXPECT_TRUE(call->outputs.empty());
  const Tensor right = at::bernoulli(x, own);
  const Tensor promised = at::zeros({64, 64});
  call->outputs = {{key_of(promised), Bytes(64 * 64 * 4)}};
  const auto made = call->run(address_of);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].id, key_of(promised));
  EXPECT_EQ(std::memcmp(made[0].address, right.const_data_ptr(), made[0].bytes.count()), 0);
}

TEST_F(Engine, SaysWhatIsMissing) {
  const Tensor x = at::randn({64, 64});
  auto calls = recorded([&] { at::relu(x); });
  const RecordedCall& record = *calls.of("aten::relu").record;
  const auto nowhere = [](StorageId) -> void* { return nullptr; };
  try {
    record.run(nowhere);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), message("aten::relu cannot run again: the storage {} among its "
                                    "arguments is not in memory",
                                    key_of(x)));
  }
}

TEST_F(Engine, TellsOutputsThatCameInTheOtherOrder) {
  const Tensor x = at::randn({2000});
  std::vector<Tensor> made;
  auto calls = recorded([&] { made = call_odd("swapped", {x}); });
  spoil(made[0]);
  spoil(made[1]);
  replay_in_place(*calls.of("aten::odd_swapped").record, address_of);
  EXPECT_TRUE(at::equal(made[0], x + 1));
  EXPECT_TRUE(at::equal(made[1], x + 2));
}

TEST_F(Engine, AFailedReplayLeavesNothingBehind) {
  const Tensor x = at::randn({2000});
  std::vector<Tensor> made;
  auto calls = recorded([&] { made = call_odd("fails", {x}); });
  const RecordedCall& record = *calls.of("aten::odd_fails").record;
  const std::size_t before = PagedTable::instance().count();
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  odd_operators_fail = true;
  EXPECT_THROW(replay_in_place(record, address_of), std::exception);
  EXPECT_THROW(record.run(address_of), std::exception);
  odd_operators_fail = false;
  EXPECT_EQ(PagedTable::instance().count(), before);
  EXPECT_EQ(at::get_num_threads(), 1);
  EXPECT_FALSE(at::GradMode::is_enabled());
  at::set_num_threads(2);
  spoil(made[0]);
  replay_in_place(record, address_of);
  EXPECT_TRUE(at::equal(made[0], at::full({2000}, 3.F)));
}

TEST_F(Engine, VerificationFindsWhatIsNotPure) {
  EXPECT_EQ(verdict("swapped"), "");
  EXPECT_EQ(verdict("writes"), "it changed an argument that its schema calls read only");
  EXPECT_EQ(verdict("draws"), "it drew random numbers without saying so");
  EXPECT_THAT(verdict("counts"), HasSubstr("its result 0 differs in "));
}

// A loader's thread, say.
TEST_F(Engine, VerificationBlamesNobodyForWhatOthersDraw) { EXPECT_EQ(verdict("beside"), ""); }

TEST_F(Engine, EachReplayFindsRunningStatisticsAsTheyWere) {
  const Tensor x = at::randn({2000});
  const Tensor mean = at::zeros({1});
  CheckedCalls calls(*engine_);
  {
    const Watched watched(calls);
    call_odd("moves", {x, mean});
  }
  EXPECT_EQ(calls.replayed["aten::odd_moves"], 1);
  EXPECT_EQ(mean.item<float>(), 1);
}

TEST_F(Engine, GivesKernelsTheSurroundingsOfTheCall) {
  Tensor x = at::randn({2000}).requires_grad_();
  std::vector<Tensor> made;
  auto& context = at::globalContext();
  const at::Float32Precision precision =
      context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  const auto set = [&](bool on) {
    at::set_num_threads(on ? 2 : 1);
    at::autocast::set_autocast_enabled(at::kCPU, on);
    at::autocast::set_autocast_dtype(at::kCPU, on ? at::kHalf : at::kBFloat16);
    at::globalContext().setFlushDenormal(on);
    context.setDeterministicAlgorithms(on, on);
    context.setUserEnabledMkldnn(!on);
    context.setDeterministicFillUninitializedMemory(!on);
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(on ? at::kDouble : at::kFloat));
    context.setFloat32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL,
                                on ? at::Float32Precision::BF16 : precision);
  };
  set(true);
  auto calls = recorded([&] { made = call_odd("sees", {x}); });
  set(false);
  const Tensor others = call_odd("sees", {x.detach()})[0].slice(0, 0, 11);
  const Tensor right = made[0].detach().slice(0, 0, 11).clone();
  // Grad mode is the same; all else has changed.
  EXPECT_EQ((others != right).sum().item<std::int64_t>(), 10);
  for (int thread = 0; thread < 2; ++thread) {
    spoil(made[0]);
    const auto replay = [&] { replay_in_place(*calls.of("aten::odd_sees").record, address_of); };
    if (thread == 0) replay();
    if (thread == 1) std::thread(replay).join();
    EXPECT_TRUE(at::equal(made[0].detach().slice(0, 0, 11), right)) << made[0].slice(0, 0, 11);
    EXPECT_TRUE(at::equal(call_odd("sees", {x.detach()})[0].slice(0, 0, 11), others));
  }
  context.setDeterministicFillUninitializedMemory(false);
}

TEST_F(Engine, LeavesGeneratorsAsTheyAre) {
  at::Generator own = at::detail::createCPUGenerator(5);
  Tensor first;
  Tensor second;
  auto calls = recorded([&] {
    first = at::rand({2000}, own, at::TensorOptions());
    second = at::bernoulli(first, own);
  });
  const Tensor right = second.clone();
  const auto states = [&] {
    return std::vector<Tensor>{own.get_state(), at::detail::getDefaultCPUGenerator().get_state()};
  };
  at::rand({7}, own, at::TensorOptions());
  at::randn({8});  // Half of a pair of normal numbers stays for later.
  const std::vector<Tensor> before = states();
  for (const auto& entry : calls.entries) {
    ASSERT_TRUE(entry.record) << entry.objection;
    const Tensor& made = entry.name == "aten::bernoulli" ? second : first;
    const Tensor copy = made.clone();
    spoil(made);
    replay_in_place(*entry.record, address_of);
    EXPECT_TRUE(at::equal(made, copy)) << entry.name;
    const std::vector<Tensor> after = states();
    EXPECT_TRUE(at::equal(before[0], after[0]) && at::equal(before[1], after[1])) << entry.name;
  }
}

TEST_F(Engine, TwoThreadsReplayAtOnce) {
  const auto train = [this] {
    at::Generator own = at::detail::createCPUGenerator(3);
    for (int round = 0; round < 20; ++round) {
      const Tensor x = at::rand({2, 8, 16, 16}, own, at::TensorOptions());
      CheckedCalls calls(*engine_);
      const Watched watched(calls);
      const Tensor y = at::conv2d(x, at::rand({8, 8, 3, 3}, own, at::TensorOptions()), {}, 1, 1);
      at::relu_(const_cast<Tensor&>(y));
      at::softmax(y.bernoulli(0.5, own).flatten(1), 1);
      EXPECT_EQ(calls.replayed.size(), 4u);
    }
  };
  std::thread other(train);
  train();
  other.join();
}

}  // namespace
}  // namespace spillway::recompute
