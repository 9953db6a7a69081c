#include "autograd_watch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "operator_facts.h"
#include "spillway/base/per_thread.h"
#include "spillway/profile/autograd_links.h"

namespace spillway::torch_binding {
namespace {

using at::Tensor;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Not;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

struct Seen {
  std::string name;
  AutogradFacts facts;
  std::thread::id thread;
};

/// All operators of the process below autograd, in the order in which they began.
std::vector<Seen>* log = nullptr;
std::mutex log_mutex;
thread_local bool inside = false;

/// As the interceptor has it.
struct ThreadState {
  AutogradWatch autograd;
  void begin_thread() { autograd = {}; }
};

void watch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  thread_local OperatorFactsCache facts;
  // Which do not come by an interceptor.
  if (inside || log == nullptr || facts.of(op).touches_nothing) {
    op.redispatchBoxed(below, stack);
    return;
  }
  AutogradWatch& autograd = per_thread<ThreadState>().autograd;
  bool needs_gradient = false;
  for (std::size_t i = stack->size() - op.schema().arguments().size(); i < stack->size(); ++i)
    if ((*stack)[i].isTensor() && (*stack)[i].toTensor().defined())
      needs_gradient |= (*stack)[i].toTensor().requires_grad();
  AutogradFacts seen;
  autograd.observe(needs_gradient, seen);
  {
    const std::lock_guard lock(log_mutex);
    log->push_back({op.schema().name().substr(6), seen, std::this_thread::get_id()});
  }
  inside = true;
  struct Leave {
    ~Leave() { inside = false; }
  } leave;
  op.redispatchBoxed(below, stack);
}

/// x * w twice over, as one node.
struct Product : torch::autograd::Function<Product> {
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& w) {
    context->save_for_backward({x, w});
    return (x * w).exp().log() * w;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    return {grads[0].sin(), grads[0].mul(saved[0]).cos()};
  }
};

/// Computes its function anew in backward, which has a backward pass of its own.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static Variable forward(AutogradContext* context, const Variable& x, std::int64_t depth) {
    context->save_for_backward({x});
    context->saved_data["depth"] = depth;
    return compute(x);
  }
  static Variable compute(const Variable& x) { return torch::tanh(x.sigmoid()); }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const std::int64_t depth = context->saved_data["depth"].toInt();
    const at::AutoGradMode with_gradients(true);
    const Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const Tensor y = depth > 0 ? Checkpoint::apply(x, depth - 1) : compute(x);
    y.backward(grads[0]);
    return {x.grad(), Tensor()};
  }
};

class AutogradWatchTest : public ::testing::Test {
 protected:
  AutogradWatchTest() {
    static const auto* const library = [] {
      auto* made = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
      made->fallback(torch::CppFunction::makeFromBoxedFunction<&watch>());
      return made;
    }();
    static_cast<void>(library);
    c10::impl::tls_set_dispatch_key_included(kKey, true);
    log = &seen_;
  }
  ~AutogradWatchTest() override {
    log = nullptr;
    c10::impl::tls_set_dispatch_key_included(kKey, false);
  }

  std::size_t count(const std::string& name) const { return phases_of(name).size(); }

  std::vector<OpPhase> phases_of(const std::string& name) const {
    std::vector<OpPhase> phases;
    for (const Seen& each : seen_)
      if (each.name == name) phases.push_back(each.facts.phase);
    return phases;
  }

  /// "threshold_backward of relu": each operator of backward that belongs to another one.
  std::vector<std::string> links() const {
    std::vector<std::string> links;
    const std::vector<profile::OpIndex> forward = forwards();
    for (std::size_t i = 0; i < seen_.size(); ++i)
      if (forward[i] != profile::kNoForward)
        links.push_back(seen_[i].name + " of " + seen_[forward[i]].name);
    return links;
  }

  std::vector<profile::OpIndex> forwards() const {
    std::vector<AutogradFacts> facts;
    for (const Seen& each : seen_) facts.push_back(each.facts);
    return profile::forward_operators(facts);
  }

  std::vector<Seen> seen_;
};

TEST_F(AutogradWatchTest, TellsForwardBackwardAndTheRest) {
  const Tensor data = torch::randn({8, 8}).abs();
  const Tensor w = torch::randn({8, 8}).requires_grad_();
  torch::optim::SGD sgd({w}, 0.1);
  for (int step = 0; step < 2; ++step) {
    sgd.zero_grad();
    data.mm(w).relu().pow(2).mean().backward();
    torch::nn::utils::clip_grad_norm_({w}, 1.0);
    sgd.step();
  }
  for (const char* name : {"normal_", "abs", "linalg_vector_norm", "add_"})
    EXPECT_THAT(phases_of(name), Each(OpPhase::kOther)) << name;
  for (const char* name : {"relu", "pow"})
    EXPECT_THAT(phases_of(name), Contains(OpPhase::kForward)) << name;
  EXPECT_THAT(phases_of("threshold_backward"), Each(OpPhase::kBackward));
  EXPECT_EQ(count("threshold_backward"), 2u);
  EXPECT_THAT(links(), Contains("threshold_backward of relu").Times(2));
  EXPECT_THAT(links(), Contains("mm of mm").Times(2));
}

// Autograd draws and masks for it, and what only compares is no way to a gradient.
TEST_F(AutogradWatchTest, CountsWhatRunsAmongForwardOperatorsAsForward) {
  const Tensor w = torch::randn({8, 8}).requires_grad_();
  const Tensor hidden = torch::dropout(w.exp(), 0.5, true);
  const Tensor mask = torch::gt(hidden, 0);
  torch::where(mask, hidden, hidden.sin()).sum().backward();
  for (const char* name : {"bernoulli_", "gt", "where"})
    EXPECT_THAT(phases_of(name), Contains(OpPhase::kForward)) << name;
  EXPECT_THAT(links(), Contains("cos of sin"));
  EXPECT_THAT(links(), Not(Contains("cos of gt")));
}

TEST_F(AutogradWatchTest, LeavesEvaluationBetweenForwardAndBackwardOut) {
  const Tensor w = torch::randn({8, 8}).requires_grad_();
  const Tensor loss = w.exp().sum();
  {
    const at::NoGradGuard evaluation;
    w.sin().mul(w);
  }
  w.cos();
  loss.backward();
  EXPECT_THAT(phases_of("sin"), Each(OpPhase::kOther));
  EXPECT_THAT(phases_of("cos"), Each(OpPhase::kForward));
  EXPECT_THAT(links(), Contains("mul of exp"));
}

TEST_F(AutogradWatchTest, ViewsBelongToTheOperatorBefore) {
  const Tensor w = torch::randn({8, 8}).requires_grad_();
  w.exp().t().reshape({64}).slice(0, 0, 8).sum().backward();
  EXPECT_THAT(links(), Contains("slice_backward of _unsafe_view"));
  EXPECT_THAT(links(), Contains("mul of exp"));
}

TEST_F(AutogradWatchTest, WritesToViewsBelongToTheWriter) {
  const Tensor w = torch::randn({8, 8}).requires_grad_();
  const Tensor y = w * 2;
  y.slice(0, 0, 4).mul_(torch::rand({4, 8}));
  y.abs().log().sum().backward();
  EXPECT_THAT(links(), Contains("div of log"));
  EXPECT_THAT(links(), Contains("mul of mul_"));  // Its node is made after it.
}

TEST_F(AutogradWatchTest, AllOfACustomFunctionIsForwardAndHasOneNode) {
  const Tensor x = torch::randn({8, 8}).requires_grad_();
  const Tensor w = torch::randn({8, 8}).requires_grad_();
  Product::apply(x.abs(), w).sum().backward();
  for (const char* name : {"exp", "log"})
    EXPECT_THAT(phases_of(name), Each(OpPhase::kForward)) << name;
  EXPECT_THAT(links(), Contains("sin of mul"));
  EXPECT_THAT(links(), Contains("cos of mul"));
  EXPECT_THAT(links(), Contains("sgn of abs"));
}

TEST_F(AutogradWatchTest, DoubleBackwardLeadsBackToForward) {
  const Tensor x = torch::randn({8, 8}).requires_grad_();
  const Tensor slope = torch::autograd::grad({x.exp().tanh().sum()}, {x}, {}, true, true)[0];
  slope.sin().sum().backward();
  const std::vector<profile::OpIndex> forward = forwards();
  std::size_t twice = 0;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    if (seen_[i].facts.phase != OpPhase::kBackward || forward[i] == profile::kNoForward) continue;
    profile::OpIndex root = forward[i];
    while (forward[root] != profile::kNoForward) root = forward[root];
    twice += root != forward[i] ? 1 : 0;
    EXPECT_EQ(seen_[root].facts.phase, OpPhase::kForward) << seen_[i].name;
  }
  EXPECT_GT(twice, 2u);
  EXPECT_THAT(links(), Contains("tanh_backward of tanh"));
  EXPECT_THAT(links(), Contains("cos of sin"));
}

TEST_F(AutogradWatchTest, WhatIsComputedAnewInBackwardIsBackward) {
  const Tensor x = torch::randn({8, 8}).requires_grad_();
  Checkpoint::apply(x.exp(), 0).sum().backward();
  EXPECT_THAT(phases_of("sigmoid"), ::testing::ElementsAre(OpPhase::kForward, OpPhase::kBackward));
  // Anew because of the first run, and its gradients because of the second.
  EXPECT_THAT(links(), Contains("sigmoid of sigmoid"));
  EXPECT_THAT(links(), Contains("tanh_backward of tanh"));
  EXPECT_THAT(links(), Contains("mul of exp"));
  const std::vector<profile::OpIndex> forward = forwards();
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    if (seen_[i].name != "tanh_backward") continue;
    EXPECT_EQ(seen_[forward.at(i)].facts.phase, OpPhase::kBackward);
  }
}

// Deeper than 60 passes within each other, autograd goes on on threads of its own.
TEST_F(AutogradWatchTest, KnowsNodesOnAutogradsOwnThreads) {
  const Tensor x = torch::randn({4}).requires_grad_();
  Checkpoint::apply(x, 70).sum().backward();
  std::size_t elsewhere = 0;
  for (const Seen& each : seen_) {
    if (each.thread == std::this_thread::get_id()) continue;
    ++elsewhere;
    EXPECT_EQ(each.facts.phase, OpPhase::kBackward) << each.name;
  }
  EXPECT_GT(elsewhere, 10u);
  EXPECT_THAT(links(), Contains("tanh_backward of tanh").Times(1));
}

TEST_F(AutogradWatchTest, BackwardOnAnotherThreadBelongsToForwardOnThisOne) {
  const Tensor x = torch::randn({8, 8}).requires_grad_();
  Tensor loss = x.exp().tanh().sum();
  const std::size_t before = seen_.size();
  std::thread other([&] {
    c10::impl::tls_set_dispatch_key_included(kKey, true);
    const Tensor own = torch::ones({8}).requires_grad_();
    own.sigmoid();  // Nodes of two threads may have equal numbers.
    own.log();
    loss.backward();
  });
  other.join();
  ASSERT_GT(seen_.size(), before + 4);
  EXPECT_THAT(links(), Contains("tanh_backward of tanh"));
  EXPECT_THAT(links(), Contains("mul of exp"));
}

/// The second of them is handed what was kept for the first.
TEST_F(AutogradWatchTest, ThreadsAfterOneAnotherHaveNodesOfTheirOwn) {
  const auto train = [] {
    std::thread([] {
      c10::impl::tls_set_dispatch_key_included(kKey, true);
      const Tensor w = torch::ones({8, 8}).requires_grad_();
      w.exp().tanh().sum().backward();
    }).join();
  };
  train();
  const std::size_t first = seen_.size();
  train();
  seen_.erase(seen_.begin(), seen_.begin() + static_cast<std::ptrdiff_t>(first));
  EXPECT_THAT(links(), Contains("tanh_backward of tanh"));
  EXPECT_THAT(links(), Contains("mul of exp"));
}

TEST_F(AutogradWatchTest, AccumulatedGradientsBelongToTheirOwnMicroBatch) {
  const Tensor w = torch::randn({8, 8}).requires_grad_();
  for (int batch = 0; batch < 3; ++batch) w.exp().tanh().sum().backward();
  const std::vector<profile::OpIndex> forward = forwards();
  std::vector<profile::OpIndex> tanhs;
  for (std::size_t i = 0; i < seen_.size(); ++i)
    if (seen_[i].name == "tanh_backward") tanhs.push_back(forward[i]);
  ASSERT_EQ(tanhs.size(), 3u);
  EXPECT_LT(tanhs[0], tanhs[1]);
  EXPECT_LT(tanhs[1], tanhs[2]);
}

}  // namespace
}  // namespace spillway::torch_binding
