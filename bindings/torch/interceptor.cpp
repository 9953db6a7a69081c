#include "interceptor.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <sstream>

#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "step_signal.h"

namespace spillway::torch_binding {
namespace {

// The dispatcher passes no user pointer to a fallback: the one process-wide link to the runtime.
std::atomic<runtime::Runtime*> current{nullptr};
c10::DispatchKey key = c10::DispatchKey::Undefined;
std::atomic<std::uint64_t> probe_calls{0};

struct ThreadState {
  bool inside = false;
  StepSignal steps;
  std::vector<runtime::RangeUse> uses;
};

ThreadState& thread_state() {
  static thread_local ThreadState* state = new ThreadState;
  return *state;
}

/// Writes the operator's name and the shapes of its tensors.
class StackText final : public runtime::OpText {
 public:
  StackText(const c10::OperatorHandle& op, const torch::jit::Stack& stack) : op_(op), stack_(stack) {}

  std::string describe() const override {
    std::ostringstream out;
    out << op_.schema().name() << '(';
    const std::size_t count = std::min(op_.schema().arguments().size(), stack_.size());
    bool first = true;
    for (std::size_t i = stack_.size() - count; i < stack_.size(); ++i) {
      if (!stack_[i].isTensor() || !stack_[i].toTensor().defined()) continue;
      const at::Tensor& tensor = stack_[i].toTensor();
      out << (first ? "" : ", ") << tensor.dtype().name() << tensor.sizes();
      first = false;
    }
    out << ')';
    return out.str();
  }

 private:
  const c10::OperatorHandle& op_;
  const torch::jit::Stack& stack_;
};

class UseCollector {
 public:
  UseCollector(runtime::Runtime& runtime, std::vector<runtime::RangeUse>& uses)
      : runtime_(runtime), uses_(uses) {
    uses_.clear();
  }

  void add(const at::Tensor& tensor, bool writes) {
    if (!tensor.defined()) return;
    const auto* impl = tensor.unsafeGetTensorImpl();
    if (writes && impl->requires_grad() && tensor.is_leaf()) wrote_leaf_ = true;
    if (!impl->has_storage()) return;
    // The raw pointer: no copy-on-write copy may be made here.
    const void* data = impl->unsafe_storage().unsafeGetStorageImpl()->data();
    runtime::RangeUse use = runtime_.find(data);
    if (!use.range.is_some()) return;
    use.writes = writes;
    for (runtime::RangeUse& known : uses_) {
      if (known.range != use.range) continue;
      known.writes |= writes;
      return;
    }
    uses_.push_back(use);
  }

  void add(const c10::IValue& value, bool writes) {
    if (value.isTensor()) {
      add(value.toTensor(), writes);
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) add(element.toTensor(), writes);
      }
    }
  }

  bool wrote_leaf() const { return wrote_leaf_; }

 private:
  runtime::Runtime& runtime_;
  std::vector<runtime::RangeUse>& uses_;
  bool wrote_leaf_ = false;
};

std::uint64_t signature_of(const c10::OperatorHandle& op,
                           const std::vector<runtime::RangeUse>& uses) {
  // The schema lives as long as the operator, so its address names it within the process.
  auto hash = reinterpret_cast<std::uintptr_t>(&op.schema()) * 0x9E3779B97F4A7C15ull;
  for (const runtime::RangeUse& use : uses) {
    hash ^= (hash >> 29) + 2 * std::uint64_t{use.pages} + (use.writes ? 1 : 0);
    hash *= 0xBF58476D1CE4E5B9ull;
  }
  return hash;
}

/// Ends the operator however the kernel ends.
class RunningOp {
 public:
  RunningOp(runtime::Runtime& runtime, ThreadState& thread) : runtime_(runtime), thread_(thread) {
    thread_.inside = true;
  }
  ~RunningOp() {
    runtime_.end_op();
    thread_.inside = false;
  }

 private:
  runtime::Runtime& runtime_;
  ThreadState& thread_;
};

void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
  runtime::Runtime* runtime = current.load(std::memory_order_relaxed);
  ThreadState& thread = thread_state();
  if (runtime == nullptr || thread.inside) {
    if (runtime == nullptr) probe_calls.fetch_add(1, std::memory_order_relaxed);
    op.redispatchBoxed(below, stack);
    return;
  }
  const auto& arguments = op.schema().arguments();
  UseCollector collector(*runtime, thread.uses);
  const std::size_t base = stack->size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    collector.add((*stack)[base + i], alias != nullptr && alias->isWrite());
  }
  if (thread.steps.observe(collector.wrote_leaf())) runtime->step_boundary();
  const StackText text(op, *stack);
  runtime->begin_op(signature_of(op, thread.uses), thread.uses, text);
  const RunningOp running(*runtime, thread);
  // What the kernel calls belongs to this operator: it need not pass through here.
  const c10::impl::ExcludeDispatchKeyGuard nested_pass(key);
  op.redispatchBoxed(below, stack);
}

/// Why a key cannot be used, or nothing.
std::string objection_to(const char* name) {
  const c10::DispatchKey candidate = c10::parseDispatchKey(name);
  auto& dispatcher = c10::Dispatcher::singleton();
  if (dispatcher.hasBackendFallbackForDispatchKey(candidate)) return "has a fallback already";
  const auto kernels = dispatcher.getRegistrationsForDispatchKey(candidate);
  if (!kernels.empty()) return message("has {} kernels", kernels.size());
  return {};
}

/// Registers on the key and runs one operator through it.
std::string try_key(const char* name) {
  key = c10::parseDispatchKey(name);
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "_", key, __FILE__,
                                                  static_cast<std::uint32_t>(__LINE__));
  library->fallback(torch::CppFunction::makeFromBoxedFunction<&intercept>());
  c10::impl::tls_set_dispatch_key_included(key, true);
  const std::uint64_t before = probe_calls.load();
  const float sum = at::add(at::ones({2}), at::ones({2})).const_data_ptr<float>()[1];
  if (probe_calls.load() > before && sum == 2.0F) {
    static auto* kept = new std::unique_ptr<torch::Library>;  // Stays for the whole process.
    *kept = std::move(library);
    return {};
  }
  c10::impl::tls_set_dispatch_key_included(key, false);
  return "does not see operators";
}

constexpr std::array<const char*, 4> kCandidates{"Fake", "TESTING_ONLY_GenericMode", "DeferredInit",
                                                 "TESTING_ONLY_GenericWrapper"};

}  // namespace

Interceptor::Interceptor(runtime::Runtime& runtime, const std::string& requested_key) {
  std::string objections;
  for (const char* name : kCandidates) {
    if (!requested_key.empty() && requested_key != "auto" && requested_key != name) continue;
    std::string objection;
    try {
      objection = objection_to(name);
      if (objection.empty()) objection = try_key(name);
    } catch (const std::exception& error) {
      objection = error.what();
      objection = objection.substr(0, objection.find('\n'));
    }
    if (objection.empty()) {
      key_name_ = name;
      current.store(&runtime);
      return;
    }
    objections += message("\n  {}: {}", name, objection);
  }
  if (objections.empty())
    throw ConfigError("unknown dispatch key '{}' (known: auto, Fake, TESTING_ONLY_GenericMode, "
                      "DeferredInit, TESTING_ONLY_GenericWrapper)",
                      requested_key);
  throw UnsupportedError("no dispatch key of this LibTorch can be used:{}", objections);
}

void Interceptor::enable_on_this_thread() {
  if (current.load(std::memory_order_relaxed) != nullptr)
    c10::impl::tls_set_dispatch_key_included(key, true);
}

void Interceptor::disable_for_good() noexcept { current.store(nullptr); }

}  // namespace spillway::torch_binding
