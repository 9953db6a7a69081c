#include "spillway/recompute/replay_engine.h"

#include <algorithm>
#include <utility>

#include "kept_storages.h"
#include "recorded_call.h"
#include "recorder.h"
#include "replay_call.h"
#include "spillway/base/error.h"
#include "spillway/recompute/operator_rules.h"
#include "tensor_facts.h"

namespace spillway::recompute {
namespace {

void tell(std::string* objection, std::string text) {
  if (objection != nullptr) *objection = std::move(text);
}

/// Place of a storage among those of a call's arguments, or nullptr.
const StorageArgument* argument_with(const RecordedCall& call, StorageId id) {
  const auto found =
      std::find_if(call.storages.begin(), call.storages.end(),
                   [id](const StorageArgument& argument) { return argument.id == id; });
  return found == call.storages.end() ? nullptr : &*found;
}

/// Looks at the results of a call. Returns an objection, empty without one.
class Completion {
 public:
  Completion(RecordedCall& call, const ReplayEngine::FindStorage& find)
      : call_(call), find_(find), returns_arguments_(rules_of(call.op()).returns_arguments) {}

  std::string take(c10::ArrayRef<c10::IValue> results) {
    std::string objection;
    for (const c10::IValue& result : results)
      for_each_tensor(result, [&](const at::Tensor& tensor) {
        if (objection.empty()) objection = take(*tensor.unsafeGetTensorImpl());
        ++number_;
      });
    if (!objection.empty()) return objection;
    const bool writes = std::any_of(call_.inputs_.begin(), call_.inputs_.end(),
                                    [](const StorageUse& use) { return use.written; });
    if (call_.outputs_.empty() && !writes) return "nothing that it made is paged";
    return {};
  }

 private:
  std::string take(const c10::TensorImpl& tensor) {
    if (const char* wrong = objection_to(tensor))
      return message("its result {} {}", number_, wrong);
    const std::byte* data = storage_address(tensor);
    if (data == nullptr) return {};
    const PagedStorage paged = find_(data);
    if (!paged.id.is_some()) return {};
    const StorageArgument* argument = argument_with(call_, paged.id);
    if (argument != nullptr && argument->written) return {};
    if (argument != nullptr) return message("its result {} is a view of an argument", number_);
    if (returns_arguments_) return "it gave its argument other memory";
    const auto known = std::find_if(call_.outputs_.begin(), call_.outputs_.end(),
                                    [&](const StorageMade& made) { return made.id == paged.id; });
    if (known != call_.outputs_.end()) return {};
    if (paged.address != data)
      return message("its result {} does not begin where its paged memory does", number_);
    call_.outputs_.push_back(
        {paged.id, Bytes(tensor.unsafe_storage().unsafeGetStorageImpl()->nbytes())});
    call_.output_tensors.push_back(number_);
    return {};
  }

  RecordedCall& call_;
  const ReplayEngine::FindStorage& find_;
  const bool returns_arguments_;
  std::uint32_t number_ = 0;
};

}  // namespace

Bytes RecordedCall::bytes_held() const {
  std::uint64_t bytes = sizeof(*this) + arguments.capacity() * sizeof(c10::IValue) +
                        slots.capacity() * sizeof(TensorSlot) +
                        tensors.capacity() * sizeof(TensorArgument) +
                        storages.capacity() * sizeof(StorageArgument);
  for (const StorageArgument& storage : storages) {
    if (storage.kept != nullptr && storage.kept.use_count() == 1 && !storage.kept->is_referred())
      bytes += storage.kept->size();
    if (storage.before) bytes += storage.before->size();
  }
  constexpr std::uint64_t kGenerator = 5 << 10;
  if (generator.defined()) bytes += kGenerator;
  return Bytes(bytes);
}

ReplayEngine::ReplayEngine(FindStorage find, ReplayEngineOptions options)
    : find_(std::move(find)), options_(options), kept_(std::make_shared<KeptStorages>()) {}

ReplayEngine::~ReplayEngine() = default;

std::unique_ptr<OpRecord> ReplayEngine::record(const c10::OperatorHandle& op,
                                               c10::ArrayRef<c10::IValue> arguments,
                                               std::string* objection) {
  const OperatorRules& rules = rules_of(op);
  if (!rules.objection.empty()) {
    tell(objection, rules.objection);
    return nullptr;
  }
  auto call = std::make_unique<RecordedCall>(op);
  std::string refusal = Recorder(*call, rules, find_, options_, *kept_).take(arguments);
  if (refusal.empty()) return call;
  tell(objection, std::move(refusal));
  return nullptr;
}

void ReplayEngine::before_call(const c10::OperatorHandle& op,
                               c10::ArrayRef<c10::IValue> arguments) {
  if (!kept_->refers_to_some()) return;
  const OperatorRules& rules = rules_of(op);
  const std::size_t count = std::min(rules.uses.size(), arguments.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (rules.uses[i] == ArgumentUse::kRead) continue;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      for_each_storage(tensor, [&](const c10::StorageImpl& storage) {
        if (storage.data() != nullptr) kept_->before_write(storage.data(), storage.nbytes());
      });
    });
  }
}

bool ReplayEngine::complete(OpRecord& record, c10::ArrayRef<c10::IValue> results,
                            std::string* objection) {
  std::string refusal = Completion(static_cast<RecordedCall&>(record), find_).take(results);
  const bool is_complete = refusal.empty();
  if (!is_complete) tell(objection, std::move(refusal));
  return is_complete;
}

std::vector<ReplayedOutput> ReplayEngine::replay(const OpRecord& record,
                                                 const AddressOf& address_of) {
  const auto& call = static_cast<const RecordedCall&>(record);
  ReplayCall replay(call);
  for (std::size_t i = 0; i < call.storages.size(); ++i) {
    const StorageArgument& storage = call.storages[i];
    if (!storage.id.is_some()) continue;
    void* address = address_of(storage.id);
    if (address == nullptr)
      throw Error("{} cannot run again: the storage {} among its arguments is not in memory",
                  call.op().schema().name(), storage.id);
    replay.bind(i, static_cast<std::byte*>(address) + storage.offset);
  }
  replay.run(options_.hidden_keys);
  return replay.take_outputs();
}

void ReplayEngine::before_free(const void* memory) noexcept { kept_->before_free(memory); }

Bytes ReplayEngine::bytes_held() const { return kept_->bytes_held(); }

Bytes ReplayEngine::most_copied() const { return kept_->most_copied(); }

}  // namespace spillway::recompute
