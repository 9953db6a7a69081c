#include "call_recorder.h"

#include <string>
#include <utility>
#include <vector>

#include "call_kind.h"
#include "spillway/base/log.h"
#include "spillway/recompute/operator_rules.h"

namespace spillway::torch_binding {
namespace {

/// A record in the shape that the runtime knows, which is free of Torch.
class RecordedCall final : public runtime::RecordedOp {
 public:
  RecordedCall(recompute::ReplayEngine& engine, std::unique_ptr<recompute::OpRecord> record)
      : engine_(engine), record_(std::move(record)) {
    for (const recompute::StorageUse& use : record_->inputs()) {
      inputs_.push_back(use.key);
      if (use.written) written_.push_back(use.key);
    }
    for (const recompute::StorageMade& made : record_->outputs()) outputs_.push_back(made.key);
  }

  const std::vector<runtime::StorageKey>& inputs() const override { return inputs_; }
  const std::vector<runtime::StorageKey>& written() const override { return written_; }
  const std::vector<runtime::StorageKey>& outputs() const override { return outputs_; }

  std::vector<runtime::ReplayedStorage> replay(const AddressOf& address_of) override {
    std::vector<runtime::ReplayedStorage> made;
    for (recompute::ReplayedOutput& output : engine_.replay(*record_, address_of)) {
      auto storage = std::make_shared<c10::Storage>(std::move(output.storage));
      void* const address = storage->mutable_data();
      made.push_back({output.key, address, std::move(storage)});
    }
    return made;
  }

 private:
  recompute::ReplayEngine& engine_;
  std::unique_ptr<recompute::OpRecord> record_;
  std::vector<runtime::StorageKey> inputs_, written_, outputs_;
};

recompute::PagedStorage find_storage(const runtime::Runtime& runtime, const void* data) {
  const runtime::RangeUse found = runtime.find(data);
  if (!found.range.is_some()) return {};
  return {runtime.key_of(data), runtime.address_of(found.range)};
}

recompute::ReplayEngineOptions unseen_by(c10::DispatchKey key) {
  recompute::ReplayEngineOptions options;
  options.hidden_keys = c10::DispatchKeySet(key);
  return options;
}

}  // namespace

CallRecorder::CallRecorder(runtime::Runtime& runtime, c10::DispatchKey key, bool verifies)
    : runtime_(runtime),
      verifies_(verifies),
      engine_([&runtime](const void* data) { return find_storage(runtime, data); },
              unseen_by(key)) {}

runtime::VerifiedReplays CallRecorder::verified() const {
  runtime::VerifiedReplays sum;
  const std::lock_guard lock(kinds_mutex_);
  for (const auto& [hash, kind] : kinds_) {
    if (kind.outcome == Outcome::kEqual) ++sum.operators[toString(kind.op->operator_name())];
    sum.equal_kinds += kind.outcome == Outcome::kEqual ? 1 : 0;
    sum.differing_kinds += kind.outcome == Outcome::kDiffers ? 1 : 0;
  }
  return sum;
}

/// Also finds out whether it is to be compared. False for what has been found to differ.
bool CallRecorder::Call::may_be_recorded(const c10::OperatorHandle& op,
                                         c10::ArrayRef<c10::IValue> arguments) {
  if (!recorder_.verifies_ || !recompute::may_replay(op)) return true;
  kind_ = kind_of(op, arguments);
  const std::lock_guard lock(recorder_.kinds_mutex_);
  const auto [kind, is_new] = recorder_.kinds_.try_emplace(kind_, Kind{&op.schema()});
  is_first_of_its_kind_ = is_new;
  return kind->second.outcome != Outcome::kDiffers;
}

CallRecorder::Call::Call(CallRecorder& recorder)
    : recorder_(recorder), is_wanted_(recorder.runtime_.wants_record()) {}

// By way of the other one: what is thrown from here on finds a Call that has to be destroyed.
CallRecorder::Call::Call(CallRecorder& recorder, const c10::OperatorHandle& op,
                         c10::ArrayRef<c10::IValue> arguments)
    : Call(recorder) {
  const bool may_be_recorded = this->may_be_recorded(op, arguments);
  if (is_wanted_ || is_first_of_its_kind_) {
    std::string objection = "its second run differed from its first";
    if (may_be_recorded) record_ = recorder_.engine_.record(op, arguments, &objection);
    if (record_ == nullptr) {
      log_debug("{} cannot run again: {}", op.schema().name(), objection);
      recorder_.runtime_.keep(nullptr);
    }
  }
  if (record_ != nullptr) hold(arguments);
  if (record_ != nullptr && is_first_of_its_kind_) {
    const runtime::Runtime::Rehearsal rehearsal(recorder_.runtime_);
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
  // The call was refused, its kernel has thrown, or there was no room: the next one may tell.
  if (!is_first_of_its_kind_) return;
  const std::lock_guard lock(recorder_.kinds_mutex_);
  recorder_.kinds_.erase(kind_);
}

void CallRecorder::Call::settle(bool is_equal) {
  const std::lock_guard lock(recorder_.kinds_mutex_);
  recorder_.kinds_[kind_].outcome = is_equal ? Outcome::kEqual : Outcome::kDiffers;
  is_first_of_its_kind_ = false;
}

/// Whether a second run gives the same bits; yes also when there is no room to find out.
bool CallRecorder::Call::verify(c10::ArrayRef<c10::IValue> results) {
  const runtime::Runtime::Rehearsal rehearsal(recorder_.runtime_);
  const std::string difference = recorder_.engine_.verify(*record_, results);
  if (!difference.empty() && rehearsal.ran_out_of_room()) return true;
  settle(difference.empty());
  if (difference.empty()) return true;
  log_warning("{} is not run again, since its second run differed from its first: {}",
              record_->op().schema().name(), difference);
  return false;
}

void CallRecorder::Call::end(c10::ArrayRef<c10::IValue> results) {
  if (record_ == nullptr) return;
  std::string objection;
  bool is_good = recorder_.engine_.complete(*record_, results, &objection);
  if (is_good && is_first_of_its_kind_) is_good = verify(results);
  if (!is_wanted_) return;
  if (is_good) {
    recorder_.runtime_.keep(std::make_unique<RecordedCall>(recorder_.engine_, std::move(record_)));
  } else {
    recorder_.runtime_.keep(nullptr);
  }
}

}  // namespace spillway::torch_binding
