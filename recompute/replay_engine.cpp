#include "spillway/recompute/replay_engine.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <utility>

#include "kept_storages.h"
#include "recorder.h"
#include "spillway/base/error.h"
#include "spillway/recompute/operator_rules.h"
#include "tensor_facts.h"
#include "torch_call.h"

namespace spillway::recompute {
namespace {

void tell(std::string* objection, std::string text) {
  if (objection != nullptr) *objection = std::move(text);
}

/// Place of a storage among those of a call's arguments, or nullptr.
const StorageArgument* argument_with(const TorchCall& call, StorageId id) {
  const auto found =
      std::find_if(call.storages.begin(), call.storages.end(),
                   [id](const StorageArgument& argument) { return argument.id == id; });
  return found == call.storages.end() ? nullptr : &*found;
}

/// Looks at the results of a call. Returns an objection, empty without one.
class Completion {
 public:
  Completion(RecordedCall& call, const ReplayEngine::FindStorage& find, c10::Device device)
      : call_(call),
        body_(TorchCall::of(call)),
        find_(find),
        device_(device),
        returns_arguments_(rules_of(body_.op).returns_arguments) {}

  std::string take(c10::ArrayRef<c10::IValue> results) {
    std::string objection;
    for (const c10::IValue& result : results)
      for_each_tensor(result, [&](const at::Tensor& tensor) {
        if (objection.empty()) objection = take(*tensor.unsafeGetTensorImpl());
        ++number_;
      });
    if (objection.empty() && body_.draws) objection = body_.draws->end_first(body_.generator);
    if (!objection.empty()) return objection;
    if (call_.outputs.empty() && !call_.writes_some()) return "nothing that it made is paged";
    return {};
  }

 private:
  std::string take(const c10::TensorImpl& tensor) {
    if (const char* wrong = objection_to(tensor, device_))
      return message("its result {} {}", number_, wrong);
    const std::byte* data = storage_address(tensor);
    if (data == nullptr) return {};
    const PagedStorage paged = find_(data);
    if (!paged.id.is_some()) return {};
    const StorageArgument* argument = argument_with(body_, paged.id);
    if (argument != nullptr && argument->written) return {};
    if (argument != nullptr) return message("its result {} is a view of an argument", number_);
    if (returns_arguments_) return "it gave its argument other memory";
    const auto known = std::find_if(call_.outputs.begin(), call_.outputs.end(),
                                    [&](const StorageMade& made) { return made.id == paged.id; });
    if (known != call_.outputs.end()) return {};
    if (paged.address != data)
      return message("its result {} does not begin where its paged memory does", number_);
    call_.outputs.push_back(
        {paged.id, Bytes(tensor.unsafe_storage().unsafeGetStorageImpl()->nbytes()), number_});
    return {};
  }

  RecordedCall& call_;
  TorchCall& body_;
  const ReplayEngine::FindStorage& find_;
  const c10::Device device_;
  const bool returns_arguments_;
  std::uint32_t number_ = 0;
};

}  // namespace

ReplayEngine::ReplayEngine(FindStorage find, ReplayEngineOptions options)
    : find_(std::move(find)), options_(std::move(options)) {
  if (options_.deleter == nullptr)
    options_.deleter = c10::GetAllocator(options_.device.type())->raw_deleter();
  kept_ = std::make_shared<KeptStorages>(options_.device, options_.give_back);
}

ReplayEngine::~ReplayEngine() = default;

std::optional<RecordedCall> ReplayEngine::record(const c10::OperatorHandle& op,
                                                 c10::ArrayRef<c10::IValue> arguments,
                                                 std::string* objection) {
  const OperatorRules& rules = rules_of(op);
  if (const std::string& general = rules.objection_on(options_.device.type()); !general.empty()) {
    tell(objection, general);
    return std::nullopt;
  }
  auto body = std::make_unique<TorchCall>(op, options_.hidden_keys);
  Recorder recorder(*body, rules, find_, options_, *kept_, turns_);
  std::string refusal = recorder.take(arguments);
  if (!refusal.empty()) {
    tell(objection, std::move(refusal));
    return std::nullopt;
  }
  RecordedCall call(std::move(body));
  call.inputs = recorder.inputs();
  return call;
}

std::unique_lock<std::recursive_timed_mutex> ReplayEngine::take_turn(
    const c10::OperatorHandle& op) {
  if (options_.device.is_cpu() || !rules_of(op).draws_random_numbers) return {};
  return turn_to_draw(turns_);
}

void ReplayEngine::before_write(const c10::StorageImpl& storage) {
  if (storage.data() != nullptr) kept_->before_write(storage.data(), storage.nbytes());
}

void ReplayEngine::before_write(const void* memory) { kept_->before_write(memory, 1); }

bool ReplayEngine::heeds_writes() const { return kept_->refers_to_some(); }

void ReplayEngine::before_call(const c10::OperatorHandle& op,
                               c10::ArrayRef<c10::IValue> arguments) {
  if (!kept_->refers_to_some()) return;
  const OperatorRules& rules = rules_of(op);
  const std::size_t count = std::min(rules.uses.size(), arguments.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (rules.uses[i] == ArgumentUse::kRead) continue;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      for_each_storage(tensor, [&](const c10::StorageImpl& storage) { before_write(storage); });
    });
  }
}

bool ReplayEngine::complete(RecordedCall& call, c10::ArrayRef<c10::IValue> results,
                            std::string* objection) {
  std::string refusal = Completion(call, find_, options_.device).take(results);
  const bool is_complete = refusal.empty();
  if (!is_complete) tell(objection, std::move(refusal));
  return is_complete;
}

bool ReplayEngine::before_free(const void* memory) noexcept { return kept_->before_free(memory); }

Bytes ReplayEngine::bytes_held() const { return kept_->bytes_held(); }

Bytes ReplayEngine::most_copied() const { return kept_->most_copied(); }

}  // namespace spillway::recompute
