#include "call_recorder.h"

#include <string>
#include <utility>

#include "call_kind.h"
#include "cpu_allocator.h"
#include "spillway/base/log.h"
#include "spillway/recompute/operator_rules.h"
#include "spillway/runtime/rehearsal.h"

namespace spillway::torch_binding {
namespace {

recompute::PagedStorage find_storage(const runtime::Runtime& runtime, const void* data) {
  const runtime::RangeUse found = runtime.find_unshared(data);
  if (!found.storage.is_some()) return {};
  return {found.storage, runtime.address_of(found.storage)};
}

recompute::ReplayEngineOptions options_for(runtime::Runtime& runtime,
                                           const CallRecorder::Options& wanted) {
  recompute::ReplayEngineOptions options;
  options.device = wanted.device;
  options.hidden_keys = c10::DispatchKeySet(wanted.key);
  if (!wanted.device.is_cpu()) {
    // A copy there is a piece of work for the device; mostly none is needed.
    options.copied_up_to = Bytes();
    options.deleter = c10::GetAllocator(wanted.device.type())->raw_deleter();
    options.give_back = [free = options.deleter](void* memory) { free(memory); };
    return options;
  }
  options.deleter = cpu_allocator_deleter();
  options.give_back = [&runtime](void* memory) { runtime.deallocate(memory); };
  return options;
}

}  // namespace

CallRecorder::CallRecorder(runtime::Runtime& runtime, const Options& options)
    : runtime_(runtime),
      options_(options),
      engine_([&runtime](const void* data) { return find_storage(runtime, data); },
              options_for(runtime, options)) {}

/// Also finds out whether it is to be compared. Says why not, or nothing.
std::string CallRecorder::Call::objection_to(const c10::OperatorHandle& op,
                                             c10::ArrayRef<c10::IValue> arguments) {
  const Options& options = recorder_.options_;
  if (options.objection_to_stream != nullptr)
    if (const char* objection = options.objection_to_stream(options.device.index()))
      return objection;
  if (!options.verifies || !recompute::may_replay(op, options.device.type())) return {};
  kind_ = kind_of(op, arguments);
  switch (recorder_.verdicts_.begin(kind_, op.schema(), is_wanted_)) {
    case ReplayVerdicts::Advice::kCompare: is_first_of_its_kind_ = true; return {};
    case ReplayVerdicts::Advice::kRecord: return {};
    case ReplayVerdicts::Advice::kLeave: return "its second run differed from its first";
    case ReplayVerdicts::Advice::kLeaveFull: break;
  }
  if (!recorder_.is_full_told_.exchange(true))
    log_warning("--verify has seen so many kinds of call that it compares no more of them; those "
                "that are new are not run again");
  return "too many kinds of call have come to compare this one";
}

CallRecorder::Call::Call(CallRecorder& recorder)
    : recorder_(recorder), is_wanted_(recorder.runtime_.wants_record()) {}

// By way of the other one: what is thrown from here on finds a Call that has to be destroyed.
CallRecorder::Call::Call(CallRecorder& recorder, const c10::OperatorHandle& op,
                         c10::ArrayRef<c10::IValue> arguments, const AutogradFacts& autograd)
    : Call(recorder) {
  turn_ = recorder_.engine_.take_turn(op);
  std::string objection;
  if (is_wanted_ || recorder_.options_.verifies) objection = objection_to(op, arguments);
  if (is_wanted_ || is_first_of_its_kind_) {
    if (objection.empty()) record_ = recorder_.engine_.record(op, arguments, &objection);
    if (!record_) {
      log_debug("{} cannot run again: {}", op.schema().name(), objection);
      note_unrecordable();
      recorder_.runtime_.keep(std::nullopt);
    }
  }
  if (record_) record_->autograd = autograd;
  if (record_) hold(arguments);
  if (record_ && is_first_of_its_kind_) {
    const runtime::Rehearsal rehearsal(recorder_.runtime_);
    recorder_.engine_.prepare_verification(*record_);
  }
  recorder_.engine_.before_call(op, arguments);
}

void CallRecorder::Call::hold(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      const c10::TensorImpl& tensor = *argument.toTensor().unsafeGetTensorImpl();
      if (tensor.has_storage()) held_.push_back(tensor.unsafe_storage());
    } else if (argument.isList()) {
      hold(argument.toListRef());
    }
  }
}

CallRecorder::Call::~Call() {
  // The call was refused, its kernel has thrown, or there was no room.
  if (is_first_of_its_kind_) recorder_.verdicts_.forget(kind_);
}

void CallRecorder::Call::note_unrecordable() {
  if (std::exchange(is_first_of_its_kind_, false)) recorder_.verdicts_.note_unrecordable(kind_);
}

/// Whether a second run gives the same bits; yes also when there is no room to find out.
bool CallRecorder::Call::verify(c10::ArrayRef<c10::IValue> results) {
  const runtime::Rehearsal rehearsal(recorder_.runtime_);
  const std::string difference = recorder_.engine_.verify(*record_, results);
  if (!difference.empty() && rehearsal.ran_out_of_room()) return true;
  recorder_.verdicts_.settle(kind_, difference.empty());
  is_first_of_its_kind_ = false;
  if (difference.empty()) return true;
  log_warning("{} is not run again, since its second run differed from its first: {}",
              record_->name(), difference);
  return false;
}

void CallRecorder::Call::end(c10::ArrayRef<c10::IValue> results) {
  if (!record_) {
    turn_ = {};
    return;
  }
  std::string objection;
  bool is_good = recorder_.engine_.complete(*record_, results, &objection);
  turn_ = {};
  if (!is_good) {
    log_debug("{} cannot run again: {}", record_->name(), objection);
    note_unrecordable();
  }
  if (is_good && is_first_of_its_kind_) is_good = verify(results);
  if (!is_wanted_) return;
  if (!is_good) record_.reset();
  recorder_.runtime_.keep(std::move(record_));
}

}  // namespace spillway::torch_binding
