#include "interceptor.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "autograd_watch.h"
#include "call_recorder.h"
#include "call_text.h"
#include "device_library.h"
#include "found_uses.h"
#include "host_update.h"
#include "list_parts.h"
#include "operator_facts.h"
#include "out_of_memory.h"
#include "parameter_storages.h"
#include "python_calls.h"
#include "spillway/base/assert.h"
#include "spillway/base/error.h"
#include "spillway/base/log.h"
#include "spillway/base/per_thread.h"
#include "spillway/base/shown_text.h"
#include "spillway/recompute/generators.h"
#include "spillway/runtime/recording/op_uses.h"
#include "spillway/split/device_turn.h"
#include "spillway/split/split_program.h"
#include "step_signal.h"

namespace spillway::torch_binding {
namespace {

// The dispatcher passes no user pointer to a fallback: the one process-wide link to the runtime.
std::atomic<runtime::Runtime*> served{nullptr};
c10::DispatchKey key = c10::DispatchKey::Undefined;
bool key_is_above_autograd = false;
std::atomic<std::uint64_t> probe_calls{0};
std::atomic<void (*)()> at_first_update{nullptr};
std::atomic<CallRecorder*> recorder{nullptr};  ///< The host's; none: nothing is to run again.
std::atomic<bool> verifies{false};
// An operator that waits for room of one device while it holds some of another: only one at a time,
// or two would wait for each other.
std::mutex turn_of_several_devices;

class RunningOp;

struct ThreadState {
  bool inside = false;
  RunningOp* running = nullptr;  ///< While `inside`.
  OperatorFactsCache facts;
  StepSignal steps;
  AutogradWatch autograd;
  ParameterStorages parameters;
  UpdatedTensors updated;     ///< With updates on the host alone.
  FoundUses found;            ///< Of the running operator.
  std::exception_ptr missed;  ///< Thrown while an operator was observed, where LibTorch drops it.

  void begin_thread() {
    inside = false;
    running = nullptr;
    steps = {};
    autograd = {};
    missed = nullptr;
  }
};

std::uint64_t signature_of(const OperatorFacts& facts, std::span<const runtime::RangeUse> uses) {
  auto hash = facts.name_hash;
  // Which part of a storage is used does not count: a window that moves from step to step would
  // make each step look new.
  for (std::size_t i = 0; i < uses.size(); ++i) {
    bool writes = uses[i].writes;
    for (; i + 1 < uses.size() && uses[i + 1].storage == uses[i].storage; ++i)
      writes |= uses[i + 1].writes;
    hash ^= (hash >> 29) + 2 * std::uint64_t{uses[i].pages} + (writes ? 1 : 0);
    hash *= 0xBF58476D1CE4E5B9ull;
  }
  return hash;
}

/// What is known of an outermost operator before its kernel: its tensors, which stay with the
/// thread, and what autograd makes of it.
class SeenOp {
 public:
  SeenOp(runtime::Runtime& runtime, ThreadState& thread, const OperatorFacts& facts,
         c10::ArrayRef<c10::IValue> arguments) {
    find_uses(runtime, facts, arguments, &thread.parameters, thread.found);
    AutogradFacts& autograd = traits_.autograd;
    thread.autograd.observe(thread.found.needs_gradient, autograd);
    // Above autograd it comes by before its node is made.
    if (key_is_above_autograd || key == c10::DispatchKey::Undefined) autograd.made = {};
    event_ = thread.steps.observe(autograd.phase == OpPhase::kBackward, thread.found.wrote_leaf);
    traits_.fills = facts.fills_outputs;
    traits_.makes_blanks = facts.makes_blanks;
    traits_.is_replayable = recorder.load(std::memory_order_relaxed) != nullptr &&
                            facts.is_replayable && thread.found.devices.used().empty();
  }

  const runtime::OpTraits& traits() const { return traits_; }
  StepSignal::Event event() const { return event_; }

 private:
  runtime::OpTraits traits_;
  StepSignal::Event event_ = StepSignal::Event::kNone;
};

/// Tells the runtimes of what begins with an operator.
void tell_steps(runtime::Runtime& runtime, const ThreadState& thread, StepSignal::Event event) {
  if (event == StepSignal::Event::kBegin) {
    runtime.step_boundary();
    DeviceRuntimes::for_each([](runtime::Runtime& device) { device.step_boundary(); });
  }
  if (event != StepSignal::Event::kUpdate) return;
  if (const auto tell = at_first_update.exchange(nullptr)) tell();
  runtime.step_updated();
  DeviceRuntimes::for_each([](runtime::Runtime& device) { device.step_updated(); });
  if (!runtime.records()) return;
  // Now all parameters of the step have been seen; the profile's tape does not show small ones.
  const auto note_small = [&](runtime::Runtime& owner) {
    owner.note_small_parameters(
        Bytes(thread.parameters.small_bytes([&](const c10::StorageImpl& storage) {
          const c10::Device device = storage.device();
          const auto* const of_storage = device.is_cpu() ? &runtime : DeviceRuntimes::of(device);
          return of_storage == &owner && !owner.find_unshared(storage.data()).storage.is_some();
        })));
  };
  note_small(runtime);
  DeviceRuntimes::for_each(note_small);
}

/// An operator that this process computes, from before its kernel to after it, however that ends:
/// on the host's runtime, and on those of devices whose storages it uses or makes.
class RunningOp {
 public:
  /// `text` outlives this.
  RunningOp(runtime::Runtime& runtime, ThreadState& thread, const OperatorFacts& facts,
            const runtime::OpTraits& traits, const runtime::OpText& text)
      : runtime_(runtime), thread_(thread), facts_(facts), traits_(traits), text_(text) {
    if (thread.found.devices.used().size() > 1) turn_ = std::unique_lock(turn_of_several_devices);
    const std::span<const runtime::RangeUse> uses = thread.found.uses.list();
    runtime::OpTraits on_host = traits;
    on_host.runs_elsewhere = !thread.found.devices.used().empty();
    with_torch_errors([&] {
      runtime.begin_op(signature_of(facts, uses), uses, text, on_host, thread.found.shared.list());
    });
    thread.inside = true;
    thread.running = this;
    try {
      const bool is_of_one = thread.found.devices.used().size() == 1 && uses.empty() &&
                             thread.found.shared.list().empty();
      for (DeviceOp& op : thread.found.devices.used())
        begin(op, is_of_one && op.records != nullptr);
    } catch (...) {
      end();
      throw;
    }
  }
  ~RunningOp() { end(); }
  RunningOp(const RunningOp&) = delete;
  RunningOp& operator=(const RunningOp&) = delete;

  /// Its kernel is about to allocate there.
  void begin_on(c10::Device device) {
    DeviceOp* const op = thread_.found.devices.at(device);
    if (op != nullptr && !op->has_begun) begin(*op, false);
  }

  /// Once its kernel has run, and what it hands out is noted.
  void hold_results() {
    if (!goes_on_) return;
    for (const DeviceOp& op : thread_.found.devices.used()) {
      if (!op.has_begun) continue;
      for (const StorageId storage : op.results) hold(op, storage);
    }
  }

 private:
  /// `may_record`: its arguments are there, and of this device alone.
  void begin(DeviceOp& op, bool may_record) {
    const std::span<const runtime::RangeUse> uses = op.uses.list();
    runtime::OpTraits traits = traits_;
    traits.is_replayable = may_record && facts_.is_replayable_on_cuda;
    op.runtime->announce_op();
    // Set first: a replay inside begin_op may allocate on this device.
    op.has_begun = true;
    try {
      with_torch_errors(
          [&] { op.runtime->begin_op(signature_of(facts_, uses), uses, text_, traits); });
    } catch (...) {
      op.has_begun = false;
      throw;
    }
    // A collective goes on when the operator has ended, and a graph uses again what it was made of:
    // nobody sees that.
    if (!facts_.goes_on && !DeviceRuntimes::is_capturing(op.device.index())) return;
    goes_on_ = true;
    for (const runtime::RangeUse& use : uses) hold(op, use.storage);
  }

  static void hold(const DeviceOp& op, StorageId storage) {
    with_torch_errors([&] { op.runtime->hold_until_freed(storage); });
  }

  void end() noexcept {
    thread_.inside = false;
    thread_.running = nullptr;
    for (DeviceOp& op : thread_.found.devices.used()) {
      if (op.has_begun) op.runtime->end_op(op.results);
    }
    runtime_.end_op();
  }

  runtime::Runtime& runtime_;
  ThreadState& thread_;
  const OperatorFacts& facts_;
  const runtime::OpTraits traits_;
  const runtime::OpText& text_;
  bool goes_on_ = false;  ///< What it uses and makes is held until the program frees it.
  std::unique_lock<std::mutex> turn_;
};

/// Records of other runtimes keep what the operator is about to write. `own`: may be null.
void tell_other_records(ThreadState& thread, const CallRecorder* own, const c10::OperatorHandle& op,
                        c10::ArrayRef<c10::IValue> arguments) {
  CallRecorder* const host = recorder.load(std::memory_order_relaxed);
  if (host != nullptr && host != own) host->before_call(op, arguments);
  for (const DeviceOp& used : thread.found.devices.used())
    if (used.records != nullptr && used.records != own) used.records->before_call(op, arguments);
}

/// The turn to draw where an operator makes its tensors, and begins on their device only then.
std::unique_lock<std::recursive_timed_mutex> take_turn(const c10::OperatorHandle& op,
                                                       c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    if (!argument.isDevice()) continue;
    if (CallRecorder* const records = DeviceRuntimes::records_of(argument.toDevice()))
      return records->take_turn(op);
  }
  return {};
}

/// Runs the kernel of a seen operator, whose arguments lie on the stack.
void compute(runtime::Runtime& runtime, ThreadState& thread, const OperatorFacts& facts,
             const runtime::OpTraits& traits, const c10::OperatorHandle& op,
             c10::DispatchKeySet below, torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::size_t count = schema.arguments().size();
  const StackText text(schema, stack, count);
  RunningOp running(runtime, thread, facts, traits, text);
  // What the kernel calls belongs to this operator: it need not pass through here.
  const c10::impl::ExcludeDispatchKeyGuard nested_pass(key);
  CallRecorder* const records = recorder.load(std::memory_order_relaxed);
  if (records == nullptr) {
    op.redispatchBoxed(below, &stack);
    thread.found.devices.note_results(torch::jit::last(stack, schema.returns().size()));
    running.hold_results();
    return;
  }
  const c10::ArrayRef<c10::IValue> arguments = torch::jit::last(stack, count);
  const std::span<DeviceOp> devices = thread.found.devices.used();
  CallRecorder* const there = devices.size() == 1 ? devices.front().records : nullptr;
  CallRecorder& own = there != nullptr ? *there : *records;
  if (!devices.empty()) tell_other_records(thread, &own, op, arguments);
  std::unique_lock<std::recursive_timed_mutex> turn;
  if (devices.empty() && DeviceRuntimes::are_some()) turn = take_turn(op, arguments);
  CallRecorder::Call call(own, op, arguments, traits.autograd);
  op.redispatchBoxed(below, &stack);
  thread.found.devices.note_results(torch::jit::last(stack, schema.returns().size()));
  running.hold_results();
  call.end(torch::jit::last(stack, schema.returns().size()));
}

/// The same in a program that is split over ranks.
void intercept_split(split::SplitProgram& program, runtime::Runtime& runtime, ThreadState& thread,
                     const OperatorFacts& facts, const c10::OperatorHandle& op,
                     c10::DispatchKeySet below, torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  if (program.is_in_parts(op, torch::jit::last(stack, count))) {
    op.redispatchBoxed(below, &stack);
    return;
  }
  const SeenOp seen(runtime, thread, facts, torch::jit::last(stack, count));
  program.run(op, below, stack, seen.traits());
}

/// One that this process computes, whose arguments lie on the stack.
void intercept_whole(runtime::Runtime& runtime, ThreadState& thread, const OperatorFacts& facts,
                     const c10::OperatorHandle& op, c10::DispatchKeySet below,
                     torch::jit::Stack& stack) {
  runtime.announce_op();
  const SeenOp seen(runtime, thread, facts,
                    torch::jit::last(stack, op.schema().arguments().size()));
  tell_steps(runtime, thread, seen.event());
  if (!HostUpdates::are_on())
    return compute(runtime, thread, facts, seen.traits(), op, below, stack);
  if (seen.event() == StepSignal::Event::kBegin) thread.updated.clear();
  compute(runtime, thread, facts, seen.traits(), op, below, stack);
  if (thread.steps.is_after_backward())
    thread.updated.note_made(op, torch::jit::last(stack, op.schema().returns().size()));
}

/// Runs an operator, whose arguments lie on the stack, for some members of its lists after the
/// others: `run` takes the arguments of a part from a stack, and leaves results there.
template <typename Run>
void run_in_parts(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                  const std::vector<recompute::ListMembers>& parts, const Run& run) {
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  const torch::jit::Stack whole(arguments.begin(), arguments.end());
  torch::jit::drop(stack, whole.size());
  std::vector<at::Tensor> results;
  for (const recompute::ListMembers& members : parts) {
    torch::jit::Stack part = recompute::arguments_for(whole, members);
    run(part);
    if (part.empty()) continue;  // It writes in place.
    for (const at::Tensor& result : part.back().toTensorVector()) results.push_back(result);
  }
  if (!op.schema().returns().empty()) stack.emplace_back(std::move(results));
}

void intercept_here(runtime::Runtime& runtime, ThreadState& thread, const OperatorFacts& facts,
                    const c10::OperatorHandle& op, c10::DispatchKeySet below,
                    torch::jit::Stack& stack) {
  if (facts.begins_with_list) {
    const auto parts = parts_on_device(op, torch::jit::last(stack, op.schema().arguments().size()));
    if (!parts.empty())
      return run_in_parts(op, stack, parts, [&](torch::jit::Stack& part) {
        intercept_whole(runtime, thread, facts, op, below, part);
      });
  }
  intercept_whole(runtime, thread, facts, op, below, stack);
}

/// Members of lists that the host has left, and where the call makes results, these in their place.
void compute_rest(runtime::Runtime& runtime, ThreadState& thread, const OperatorFacts& facts,
                  const c10::OperatorHandle& op, c10::DispatchKeySet below,
                  c10::ArrayRef<c10::IValue> arguments, const recompute::ListMembers& rest,
                  std::vector<at::Tensor>& results) {
  if (rest.empty()) return;
  torch::jit::Stack part = recompute::arguments_for(arguments, rest);
  intercept_here(runtime, thread, facts, op, below, part);
  for (std::size_t i = 0; !results.empty() && i < rest.size(); ++i)
    results[rest[i]] = part.back().toTensorVector()[i];
}

/// An optimizer's call by the host, and for what it cannot do by the GPU. False: nothing is done.
bool intercept_on_host(runtime::Runtime& runtime, ThreadState& thread, const OperatorFacts& facts,
                       const c10::OperatorHandle& op, c10::DispatchKeySet below,
                       torch::jit::Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  if (!HostUpdates::may_be_of_update(op) || c10::GradMode::is_enabled() ||
      !thread.steps.is_after_backward() ||
      !thread.updated.may_go_on_with(op, arguments, thread.parameters))
    return false;
  HostCall call(op, arguments);
  if (call.members().empty()) return false;
  const SeenOp seen(runtime, thread, facts, arguments);
  if (seen.traits().autograd.phase == OpPhase::kBackward) return false;
  tell_steps(runtime, thread, seen.event());
  if (CallRecorder* const host = recorder.load(std::memory_order_relaxed)) {
    host->before_call(op, arguments);
    DeviceRuntimes::for_each_record(
        [&](CallRecorder& records) { records.before_call(op, arguments); });
  }
  const std::size_t size = facts.begins_with_list ? arguments[0].toListRef().size() : 1;
  std::vector<at::Tensor> results(call.makes_results() ? size : 0);
  recompute::ListMembers rest = call.run(results);
  if (!facts.begins_with_list && !rest.empty()) return false;
  for (std::size_t i = 0; i < size; ++i)
    if (std::find(call.members().begin(), call.members().end(), i) == call.members().end())
      rest.push_back(i);
  compute_rest(runtime, thread, facts, op, below, arguments, rest, results);
  torch::jit::Stack made;
  if (facts.begins_with_list && call.makes_results()) made.emplace_back(std::move(results));
  if (!facts.begins_with_list) made.emplace_back(results.empty() ? arguments[0] : results[0]);
  thread.updated.note_updated(op, arguments, made);
  torch::jit::drop(stack, op.schema().arguments().size());
  for (c10::IValue& each : made) stack.push_back(std::move(each));
  return true;
}

void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key);
  runtime::Runtime* runtime = served.load(std::memory_order_relaxed);
  if (runtime == nullptr) {
    probe_calls.fetch_add(1, std::memory_order_relaxed);
    op.redispatchBoxed(below, stack);
    return;
  }
  ThreadState& thread = per_thread<ThreadState>();
  if (thread.inside) {
    op.redispatchBoxed(below, stack);
    return;
  }
  const OperatorFacts& facts = thread.facts.of(op);
  if (key_is_above_autograd && facts.is_composite) {
    op.redispatchBoxed(below, stack);
    return;
  }
  const std::size_t count = op.schema().arguments().size();
  if (split::SplitProgram* const program = split::SplitProgram::running()) {
    if (program->is_on_this_thread()) {
      intercept_split(*program, *runtime, thread, facts, op, below, *stack);
      return;
    }
    program->check_other_thread(op, torch::jit::last(*stack, count));
  }
  // A subclass of tensors or a mode in Python carries the call out by others, which come by on
  // their own: only these say what memory they use (tensors of shards stand for others).
  if (!key_is_above_autograd && below.has(c10::DispatchKey::Python)) {
    carry_out_by_python(op, below, *stack, key);
    return;
  }
  if (HostUpdates::are_on() && intercept_on_host(*runtime, thread, facts, op, below, *stack))
    return;
  intercept_here(*runtime, thread, facts, op, below, *stack);
}

/// The running operator of an observer that cannot wrap the call.
struct ObservedOp final : at::ObserverContext {
  ObservedOp(const c10::FunctionSchema& schema, std::string shown)
      : text(schema, std::move(shown)) {}
  KeptText text;
  std::optional<RunningOp> running;
};

std::unique_ptr<at::ObserverContext> observe_start(const at::RecordFunction& function) {
  runtime::Runtime* runtime = served.load(std::memory_order_relaxed);
  const auto name = function.operator_name();
  if (runtime == nullptr || !name) return nullptr;
  ThreadState& thread = per_thread<ThreadState>();
  if (thread.inside) return nullptr;
  const auto op = c10::Dispatcher::singleton().findSchema(*name);
  if (!op) return nullptr;
  const OperatorFacts& facts = thread.facts.of(*op);
  if (facts.is_composite) return nullptr;
  auto observed =
      std::make_unique<ObservedOp>(op->schema(), call_text(op->schema(), function.inputs()));
  try {
    runtime->announce_op();
    const SeenOp seen(*runtime, thread, facts, function.inputs());
    tell_steps(*runtime, thread, seen.event());
    observed->running.emplace(*runtime, thread, facts, seen.traits(), observed->text);
  } catch (...) {
    // The kernel runs all the same, on faults; the next allocation tells.
    if (!thread.missed) thread.missed = std::current_exception();
    return nullptr;
  }
  return observed;
}

void observe_end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr) static_cast<ObservedOp*>(context)->running.reset();
}

void observe_all_threads() {
  at::addGlobalCallback(at::RecordFunctionCallback(&observe_start, &observe_end)
                            .needsInputs(true)
                            .scopes({at::RecordScope::FUNCTION}));
}

/// Why a key cannot be used, or nothing.
std::string objection_to(const char* name) {
  const c10::DispatchKey candidate = c10::parseDispatchKey(name);
  auto& dispatcher = c10::Dispatcher::singleton();
  if (dispatcher.hasBackendFallbackForDispatchKey(candidate)) return "has a fallback already";
  const auto kernels = dispatcher.getRegistrationsForDispatchKey(candidate);
  if (!kernels.empty()) return message("has kernels of its own ({})", kernels.size());
  return {};
}

/// Makes the dispatcher skip the key for operators that only make views: they use no memory, and
/// boxing their arguments would cost more than they do. Returns what keeps it so.
std::unique_ptr<torch::Library> let_views_pass() {
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__,
                                                  static_cast<std::uint32_t>(__LINE__));
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    const auto op = dispatcher.findSchema(name);
    if (op && OperatorFacts(*op).touches_nothing)
      library->impl(toString(name).c_str(), torch::CppFunction::makeFallthrough());
  }
  return library;
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
    auto views = let_views_pass();
    // Stay for the whole process.
    static auto* const kept = new std::vector<std::unique_ptr<torch::Library>>;
    kept->push_back(std::move(library));
    kept->push_back(std::move(views));
    return {};
  }
  c10::impl::tls_set_dispatch_key_included(key, false);
  return "does not see operators";
}

constexpr const char* kBelowAutograd = "Fake";
constexpr std::array<const char*, 4> kCandidates{kBelowAutograd, "TESTING_ONLY_GenericMode",
                                                 "DeferredInit", "TESTING_ONLY_GenericWrapper"};
constexpr const char* kObserver = "record-function";

/// Takes the key, or says why not.
std::string objection_after_trying(const char* name) {
  try {
    const std::string objection = objection_to(name);
    return objection.empty() ? try_key(name) : objection;
  } catch (const std::exception& error) {
    if (key != c10::DispatchKey::Undefined) c10::impl::tls_set_dispatch_key_included(key, false);
    return first_line(error.what());
  }
}

}  // namespace

std::string take_dispatch_key(const std::string& requested_key) {
  const bool any = requested_key.empty() || requested_key == "auto";
  std::string objections;
  std::string known;
  for (const char* name : kCandidates) {
    known += message(", {}", name);
    if (!any && requested_key != name) continue;
    const std::string objection = objection_after_trying(name);
    if (objection.empty()) {
      key_is_above_autograd = std::string_view(name) != kBelowAutograd;
      return name;
    }
    objections += message("\n  {}: {}", name, objection);
  }
  if (!any && requested_key != kObserver) {
    if (objections.empty())
      throw ConfigError("unknown dispatch key '{}' (known: auto{}, {})", requested_key, known,
                        kObserver);
    throw UnsupportedError("this dispatch key cannot be used:{}", objections);
  }
  if (any) log_warning("no dispatch key is free, observing operators instead:{}", objections);
  key = c10::DispatchKey::Undefined;
  return kObserver;
}

Interceptor::Interceptor(runtime::Runtime& runtime, const std::string& requested_key,
                         bool verifies_replays)
    : key_name_(take_dispatch_key(requested_key)) {
  served.store(&runtime);
  if (key_name_ == kObserver) observe_all_threads();
  if (!runtime.recomputes()) return;
  // Above autograd an operator stands for several, and what it saves for backward is not its own.
  if (!is_below_autograd()) {
    log_warning("operators are seen by way of {}, which cannot run them again: tensors are moved "
                "only{}",
                key_name_, verifies_replays ? ", and no second run is compared" : "");
    return;
  }
  verifies.store(verifies_replays);
  // Stays: records point to it.
  recorder.store(new CallRecorder(runtime, {.key = key, .verifies = verifies_replays}));
}

Interceptor::~Interceptor() {
  served.store(nullptr);
  recorder.store(nullptr);
}

void Interceptor::add_device(c10::DeviceIndex device, runtime::Runtime& runtime,
                             const StreamFacts& streams) {
  CallRecorder* records = nullptr;
  if (recorder.load() != nullptr && runtime.recomputes())
    records = new CallRecorder(runtime, {.key = key,
                                         .verifies = verifies.load(),
                                         .device = {c10::DeviceType::CUDA, device},
                                         .objection_to_stream = streams.objection});
  DeviceRuntimes::add(device, runtime, streams, records);
}

bool Interceptor::is_below_autograd() const {
  return key_name_ != kObserver && !key_is_above_autograd;
}

void Interceptor::compute(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                          torch::jit::Stack& stack, const runtime::OpTraits& traits) {
  runtime::Runtime& runtime = *served.load(std::memory_order_relaxed);
  ThreadState& thread = per_thread<ThreadState>();
  const OperatorFacts& facts = thread.facts.of(op);
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  const split::DeviceTurn turn(recompute::gpu_of(arguments).has_value());
  const auto run = [&](torch::jit::Stack& with) {
    runtime.announce_op();
    find_uses(runtime, facts, torch::jit::last(with, op.schema().arguments().size()), nullptr,
              thread.found);
    torch_binding::compute(runtime, thread, facts, traits, op, below, with);
  };
  const auto parts = facts.begins_with_list ? parts_on_device(op, arguments)
                                            : std::vector<recompute::ListMembers>();
  parts.empty() ? run(stack) : run_in_parts(op, stack, parts, run);
}

void Interceptor::run_beside(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> shown,
                             c10::ArrayRef<c10::IValue> used, const std::function<void()>& run) {
  const split::DeviceTurn turn;
  runtime::Runtime& runtime = *served.load(std::memory_order_relaxed);
  ThreadState& thread = per_thread<ThreadState>();
  SPILLWAY_ASSERT(!thread.inside);
  const OperatorFacts& facts = thread.facts.of(op);
  runtime.announce_op();
  find_uses(runtime, facts, used, nullptr, thread.found);
  runtime::OpTraits traits;
  traits.is_beside = true;
  const ArgumentsText text(op.schema(), shown);
  const RunningOp running(runtime, thread, facts, traits, text);
  tell_other_records(thread, nullptr, op, used);
  run();
}

c10::DispatchKeySet Interceptor::keys() { return c10::DispatchKeySet(key); }

bool Interceptor::before_free(const void* memory) noexcept {
  CallRecorder* const records = recorder.load(std::memory_order_relaxed);
  return records != nullptr && records->before_free(memory);
}

bool Interceptor::before_free_on(c10::Device device, const void* memory) noexcept {
  CallRecorder* const records = DeviceRuntimes::records_of(device);
  return records != nullptr && records->before_free(memory);
}

const CallRecorder* Interceptor::records() { return recorder.load(); }

void Interceptor::enable_on_this_thread() {
  const bool uses_key = served.load() != nullptr && key != c10::DispatchKey::Undefined;
  if (uses_key) c10::impl::tls_set_dispatch_key_included(key, true);
}

void Interceptor::before_allocation() {
  if (served.load(std::memory_order_relaxed) == nullptr) return;
  if (key != c10::DispatchKey::Undefined) {
    if (!c10::impl::tls_is_dispatch_key_included(key)) enable_on_this_thread();
    return;
  }
  ThreadState& thread = per_thread<ThreadState>();
  if (thread.missed) std::rethrow_exception(std::exchange(thread.missed, nullptr));
}

void Interceptor::before_allocation_on(c10::Device device) {
  before_allocation();
  ThreadState& thread = per_thread<ThreadState>();
  if (thread.running != nullptr) thread.running->begin_on(device);
}

void Interceptor::before_pointer(const void* tensor, int writes) {
  // writes < 0: the caller reads at once, from a host copy if need be; nothing has to be held.
  if (writes < 0) return;
  const auto& taken = *static_cast<const at::TensorBase*>(tensor);
  if (!taken.defined() || !taken.has_storage()) return;
  runtime::Runtime* const runtime = DeviceRuntimes::of(taken.device());
  // A kernel that runs again asks where no operator is seen, too.
  if (runtime == nullptr || per_thread<ThreadState>().inside || runtime::Runtime::runs_operator())
    return;
  const split::DeviceTurn turn(split::SplitProgram::running() != nullptr);
  if (CallRecorder* const records = DeviceRuntimes::records_of(taken.device());
      records != nullptr && writes != 0)
    records->before_write(*taken.storage().unsafeGetStorageImpl());
  const auto use = runtime->find(taken.storage().unsafeGetStorageImpl()->data());
  if (use.storage.is_some()) with_torch_errors([&] { runtime->hold_until_freed(use.storage); });
}

void Interceptor::before_address(const void* address) {
  // In a forked child nobody serves tensors of GPUs.
  if (served.load(std::memory_order_relaxed) == nullptr) return;
  if (per_thread<ThreadState>().inside || runtime::Runtime::runs_operator()) return;
  DeviceRuntimes::for_each_record([&](CallRecorder& records) { records.before_write(address); });
  DeviceRuntimes::for_each([&](runtime::Runtime& runtime) {
    const auto use = runtime.find(address);
    if (use.storage.is_some()) with_torch_errors([&] { runtime.hold_until_freed(use.storage); });
  });
}

bool Interceptor::heeds_address(const void* address) noexcept {
  bool heeds = false;
  DeviceRuntimes::for_each_record([&](CallRecorder& records) { heeds |= records.heeds_writes(); });
  DeviceRuntimes::for_each(
      [&](runtime::Runtime& runtime) { heeds |= runtime.find(address).storage.is_some(); });
  return heeds;
}

void Interceptor::tell_of_first_update(void (*tell)()) { at_first_update.store(tell); }

void Interceptor::update_on_host() { HostUpdates::switch_on(key); }

void Interceptor::disable_for_good() noexcept { served.store(nullptr); }

}  // namespace spillway::torch_binding
