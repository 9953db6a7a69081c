// Calls on tensors of the emulated GPU that run again.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "spillway/base/error.h"
#include "spillway/recompute/operator_rules.h"
#include "spillway/recompute/replay_engine.h"
#include "spillway/recompute/surroundings.h"

namespace spillway::recompute {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

const c10::Device kGpu(c10::DeviceType::CUDA, 0);

c10::OperatorHandle op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

/// A call of the program, as it is seen and perhaps recorded.
struct SeenCall {
  std::optional<RecordedCall> record;
  std::string objection;
  torch::jit::Stack results;
};

class DeviceReplays : public ::testing::Test {
 protected:
  /// LibTorch's flags end with the process, and what still runs then would look at them.
  ~DeviceReplays() override {
    const c10::impl::VirtualGuardImpl gpu(c10::DeviceType::CUDA);
    gpu.synchronizeDevice(0);
  }

  /// From now on the tensor counts as paged.
  StorageId page(const Tensor& tensor) {
    const StorageId id(next_++, 1);
    paged_.emplace(static_cast<const std::byte*>(tensor.storage().data()),
                   Paged{id, tensor.storage().nbytes()});
    return id;
  }
  Tensor paged(const Tensor& tensor) {
    page(tensor);
    return tensor;
  }

  /// Runs the operator below autograd. Of its results the first is paged.
  SeenCall see(const c10::OperatorHandle& called, std::vector<c10::IValue> arguments,
               const std::function<void()>& meanwhile = {}) {
    SeenCall seen;
    auto turn = engine_.take_turn(called);
    seen.record = engine_.record(called, arguments, &seen.objection);
    engine_.before_call(called, arguments);
    if (meanwhile) meanwhile();
    seen.results = std::move(arguments);
    called.callBoxed(&seen.results);
    if (!paged_.contains(static_cast<const std::byte*>(result_of(seen).storage().data())))
      page(result_of(seen));
    if (seen.record && !engine_.complete(*seen.record, seen.results, &seen.objection))
      seen.record.reset();
    return seen;
  }
  static Tensor result_of(const SeenCall& seen) { return seen.results.front().toTensor(); }

  /// What the first result is in another run.
  Tensor again(const SeenCall& seen) {
    const Tensor first = result_of(seen);
    std::vector<OutputMemory> made =
        seen.record->run([this](StorageId id) { return address_of(id); });
    return at::from_blob(
               made.front().address, first.sizes(), first.strides(),
               [kept = made.front().memory](void*) {}, first.options(), kGpu)
        .clone();
  }

  void* address_of(StorageId id) {
    for (const auto& [address, block] : paged_)
      if (block.id == id) return const_cast<std::byte*>(address);
    return nullptr;
  }

  std::string objection(const c10::OperatorHandle& called, std::vector<c10::IValue> arguments) {
    return see(called, std::move(arguments)).objection;
  }

  static ReplayEngineOptions options() {
    ReplayEngineOptions options;
    options.device = kGpu;
    options.copied_up_to = Bytes();
    return options;
  }

  PagedStorage find(const void* data) const {
    auto next = paged_.upper_bound(static_cast<const std::byte*>(data));
    if (next == paged_.begin()) return {};
    --next;
    if (static_cast<const std::byte*>(data) >= next->first + next->second.size) return {};
    return {next->second.id, next->first};
  }

  struct Paged {
    StorageId id;
    std::size_t size;
  };
  std::map<const std::byte*, Paged> paged_;
  std::uint32_t next_ = 0;
  const at::NoGradGuard no_grad_;
  const at::TensorOptions there_ = at::TensorOptions().device(kGpu);
  ReplayEngine engine_{[this](const void* data) { return find(data); }, options()};
};

TEST_F(DeviceReplays, GiveTheSameBitsFromWhatSmallTensorsHeld) {
  const Tensor x = paged(at::randn({64, 64}, there_));
  const Tensor weight = at::randn({64, 64}, there_);
  const SeenCall seen = see(op("aten::mm"), {x, weight});
  ASSERT_TRUE(seen.record) << seen.objection;
  const Tensor first = result_of(seen).clone();
  const std::vector<c10::IValue> write{weight, 2.0, 1};
  engine_.before_call(op("aten::add_", "Scalar"), write);
  weight.add_(2.0);
  result_of(seen).zero_();
  EXPECT_TRUE(again(seen).equal(first));
  EXPECT_FALSE(at::mm(x, weight).equal(first));
}

TEST_F(DeviceReplays, TakeNumbersOfTheHostAsTheyWere) {
  const Tensor x = paged(at::randn({64, 64}, there_));
  Tensor factor = at::scalar_tensor(3.0);
  const SeenCall seen = see(op("aten::mul", "Tensor"), {x, factor});
  ASSERT_TRUE(seen.record) << seen.objection;
  const Tensor first = result_of(seen).clone();
  factor.fill_(5.0);
  EXPECT_TRUE(again(seen).equal(first));
}

TEST_F(DeviceReplays, DrawAsTheFirstRunAndLeaveTheGeneratorWhereItIs) {
  const Tensor x = paged(at::ones({64, 64}, there_));
  at::rand({5}, there_);  // It is not at its beginning.
  const SeenCall seen = see(op("aten::native_dropout"), {x, 0.5, true});
  ASSERT_TRUE(seen.record) << seen.objection;
  const Tensor first = result_of(seen).clone();
  at::rand({5}, there_);
  const at::Generator& generator = at::globalContext().defaultGenerator(kGpu);
  const std::uint64_t before = generator.get_offset();
  EXPECT_TRUE(again(seen).equal(first));
  EXPECT_EQ(generator.get_offset(), before);
  EXPECT_FALSE(std::get<0>(at::native_dropout(x, 0.5, true)).equal(first));
  EXPECT_TRUE(again(seen).equal(first)) << "as often as one likes";
}

TEST_F(DeviceReplays, DrawFromTheGeneratorThatTheCallWasGiven) {
  at::Generator given = at::globalContext().defaultGenerator(kGpu).clone();
  given.set_current_seed(11);
  const Tensor x = paged(at::full({64, 64}, 0.5, there_));
  const SeenCall seen = see(op("aten::bernoulli"), {x, given});
  ASSERT_TRUE(seen.record) << seen.objection;
  const Tensor first = result_of(seen).clone();
  EXPECT_TRUE(again(seen).equal(first));
  EXPECT_FALSE(at::bernoulli(x, given).equal(first));
}

TEST_F(DeviceReplays, SayWhereSomebodyElseHasDrawnBetween) {
  const Tensor x = paged(at::ones({64, 64}, there_));
  const SeenCall seen =
      see(op("aten::native_dropout"), {x, 0.5, true}, [this] { at::rand({5}, there_); });
  ASSERT_TRUE(seen.record) << seen.objection;
  try {
    again(seen);
    FAIL() << "it drew from elsewhere";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("native_dropout drew other random numbers"));
  }
}

TEST_F(DeviceReplays, DrawOneAfterTheOther) {
  const Tensor x = paged(at::ones({64, 64}, there_));
  const SeenCall seen = see(op("aten::native_dropout"), {x, 0.5, true});
  const Tensor first = result_of(seen).clone();
  std::unique_lock<std::recursive_timed_mutex> turn = engine_.take_turn(op("aten::native_dropout"));
  EXPECT_FALSE(engine_.take_turn(op("aten::mm")).owns_lock());
  std::promise<void> begun;
  auto other = std::async(std::launch::async, [&] {
    const at::NoGradGuard no_grad;
    begun.set_value();
    return again(seen);
  });
  begun.get_future().wait();
  at::rand({5}, there_);
  turn.unlock();
  EXPECT_TRUE(other.get().equal(first));
}

TEST_F(DeviceReplays, AreRefusedWhereTheBitsMayDiffer) {
  const Tensor x = paged(at::randn({64, 64}, there_));
  const Tensor rows = at::arange(64, there_.dtype(at::kLong));
  EXPECT_EQ(objection(op("aten::index_add"), {x, 0, rows, x, 1}),
            "it adds up in an order that differs each time");
  const Tensor image = paged(at::randn({1, 2, 16, 16}, there_));
  const Tensor filter = at::randn({2, 2, 3, 3}, there_);
  const std::vector<std::int64_t> ones{1, 1};
  const std::vector<std::int64_t> zeros{0, 0};
  const auto convolve = [&](bool transposed) {
    return objection(op("aten::convolution"),
                     {image, filter, c10::IValue(), ones, zeros, ones, transposed, zeros, 1});
  };
  EXPECT_EQ(convolve(false), "");
  EXPECT_THAT(convolve(true), HasSubstr("cuDNN may add up in an order"));
  at::globalContext().setBenchmarkCuDNN(true);
  EXPECT_THAT(convolve(false), HasSubstr("cuDNN may choose another algorithm"));
  at::globalContext().setBenchmarkCuDNN(false);
  EXPECT_EQ(rules_of(op("aten::_cudnn_rnn")).cuda_objection, "keeps a state of its own");
  EXPECT_EQ(rules_of(op("aten::native_dropout")).cuda_objection, "");
  EXPECT_TRUE(rules_of(op("aten::upsample_bilinear2d_backward")).is_unordered_on_cuda);
  EXPECT_TRUE(rules_of(op("aten::scatter_add_")).is_unordered_on_cuda);
  EXPECT_FALSE(rules_of(op("aten::mm")).is_unordered_on_cuda);
}

TEST_F(DeviceReplays, AreOfOneDevice) {
  const Tensor x = paged(at::randn({64, 64}, there_));
  std::string objection;
  EXPECT_FALSE(engine_.record(op("aten::copy_"), {x, at::randn({64, 64}), false}, &objection));
  EXPECT_THAT(objection, HasSubstr("of its arguments lie on the host"));
}

TEST_F(DeviceReplays, AreComparedWithTheFirstRun) {
  const Tensor x = paged(at::randn({64, 64}, there_));
  SeenCall seen = see(op("aten::sin"), {x});
  ASSERT_TRUE(seen.record) << seen.objection;
  EXPECT_EQ(engine_.verify(*seen.record, seen.results), "");
  result_of(seen)[3].add_(1.0);
  EXPECT_THAT(engine_.verify(*seen.record, seen.results), HasSubstr("its result 0 differs in"));

  const std::vector<c10::IValue> arguments{x, 1.0, 1};
  auto record = engine_.record(op("aten::add_", "Scalar"), arguments);
  ASSERT_TRUE(record);
  engine_.prepare_verification(*record);
  x.add_(1.0);
  const std::vector<c10::IValue> results{x};
  ASSERT_TRUE(engine_.complete(*record, results));
  EXPECT_EQ(engine_.verify(*record, results), "");
}

TEST_F(DeviceReplays, RunUnderTheSettingsOfTheCall) {
  at::Context& context = at::globalContext();
  const auto set = [&](bool wanted) {
    context.setBenchmarkCuDNN(wanted);
    context.setDeterministicCuDNN(wanted);
    context.setUserEnabledCuDNN(!wanted);
    context.setAllowBF16ReductionCuBLAS(!wanted);
    context.setFloat32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL,
                                wanted ? at::Float32Precision::TF32 : at::Float32Precision::IEEE);
  };
  set(true);
  const auto of_call = Surroundings::of_this_thread();
  set(false);
  const auto own = Surroundings::of_this_thread();
  EXPECT_NE(of_call->flags, own->flags);
  {
    const SurroundingsGuard guard(*of_call, {});
    EXPECT_EQ(Surroundings::of_this_thread()->flags, of_call->flags);
    EXPECT_TRUE(context.benchmarkCuDNN());
  }
  EXPECT_EQ(Surroundings::of_this_thread()->flags, own->flags);
}

}  // namespace
}  // namespace spillway::recompute
