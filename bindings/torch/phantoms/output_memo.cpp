#include "spillway/phantoms/output_memo.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "call_key.h"
#include "draws.h"
#include "large_call.h"
#include "list_call.h"
#include "result_rules.h"
#include "spillway/phantoms/phantom_memory.h"
#include "spillway/phantoms/plain_tensor.h"
#include "spillway/recompute/generators.h"
#include "trial_run.h"

namespace spillway::phantoms {
namespace {

/// The tensor of that number among the arguments, those in lists included.
const at::Tensor& argument_tensor(c10::ArrayRef<c10::IValue> arguments, std::uint32_t number) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) {
      if (number == 0) return value.toTensor();
      --number;
    } else if (value.isList() && !value.isIntList()) {
      for (const c10::IValue& one : value.toListRef()) {
        if (!one.isTensor()) continue;
        if (number == 0) return one.toTensor();
        --number;
      }
    }
  }
  TORCH_CHECK(false, "a call has fewer tensors than others of its kind");
}

/// Makes the results of one call.
class Phantoms {
 public:
  Phantoms(const CallOutputs& outputs, c10::ArrayRef<c10::IValue> arguments, c10::Allocator& memory)
      : outputs_(outputs), arguments_(arguments) {
    for (std::size_t i = 0; i < outputs.storages.size(); ++i) {
      const std::size_t bytes = outputs.storages[i];
      c10::DataPtr nothing = memory.allocate(bytes);
      nothing.unsafe_set_device(outputs.devices[i]);
      storages_.push_back(c10::Storage(c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), bytes, std::move(nothing),
          c10::GetAllocator(outputs.devices[i].type()), /*resizable=*/true)));
    }
  }

  c10::IValue result(const ResultMade& made) {
    switch (made.kind) {
      case ResultMade::Kind::kArgument: return arguments_[made.first];
      case ResultMade::Kind::kTensor: return tensor(outputs_.tensors[made.first]);
      case ResultMade::Kind::kList: break;
    }
    c10::List<at::Tensor> list;
    list.reserve(made.count);
    for (std::uint32_t i = 0; i < made.count; ++i)
      list.push_back(tensor(outputs_.tensors[made.first + i]));
    return list;
  }

 private:
  at::Tensor tensor(const TensorMade& made) {
    switch (made.from) {
      case TensorMade::From::kUndefined: return {};
      case TensorMade::From::kArgument: return argument_tensor(arguments_, made.number);
      case TensorMade::From::kNewStorage:
        return over(c10::Storage(storages_[made.number]), made.offset, made);
      case TensorMade::From::kStorage: break;
    }
    const at::Tensor& shared = argument_tensor(arguments_, made.number);
    return over(c10::Storage(shared.storage()), shared.storage_offset() + made.offset, made);
  }

  static at::Tensor over(c10::Storage storage, std::int64_t offset, const TensorMade& made) {
    const c10::DispatchKeySet keys = keys_on(storage.device_type());
    auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys,
                                                           c10::scalarTypeToTypeMeta(made.dtype));
    c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    impl.set_sizes_and_strides(made.sizes, made.strides, offset);
    TensorFlags{made.conjugated, made.negated, made.wrapped_number}.give_to(impl);
    return tensor;
  }

  const CallOutputs& outputs_;
  c10::ArrayRef<c10::IValue> arguments_;
  c10::SmallVector<c10::Storage, 4> storages_;
};

}  // namespace

OutputMemo::OutputMemo(OutputMemoOptions options) : options_(options) {}

OutputMemo::~OutputMemo() = default;

const CallOutputs& OutputMemo::refused(const char* reason) {
  refused_.making = Making::kValues;
  refused_.reason = reason;
  return refused_;
}

const CallOutputs& OutputMemo::outputs_of(const c10::OperatorHandle& op,
                                          c10::ArrayRef<c10::IValue> arguments) {
  const ResultRules& rules = rules_.of(op);
  if (rules.for_all().making != Making::kPhantoms) return rules.for_all();
  if (!has_plain_tensors(arguments)) return refused("takes a tensor that is not strided");
  if (rules.is_known()) return rules.for_all();
  if (rules.takes_no_masks() && has_mask(arguments[1]))
    return refused("returns as many values as its mask tells");
  const std::uint64_t key = key_of(op, rules, arguments);
  const auto found = outputs_.find(key);
  if (found != outputs_.end()) return *found->second;
  if (outputs_.size() >= options_.most_kinds) outputs_.clear();
  ++learned_;
  const bool is_on_gpu = recompute::gpu_of(arguments).has_value();
  std::optional<CallOutputs> learned;
  if (is_on_gpu)
    learned = outputs_by_members(op, arguments, [&](const recompute::ListMembers& members) {
      return outputs_of(op, recompute::arguments_for(arguments, members));
    });
  const auto learn = [&] {
    learned = outputs_by_small_calls(op, rules, arguments, options_.hidden_keys);
    if (!learned) learned = TrialRun(op, rules, arguments, options_.hidden_keys).learn();
  };
  if (!learned && is_on_gpu && options_.try_on_gpu != nullptr)
    options_.try_on_gpu(op, arguments, learn);
  else if (!learned)
    learn();
  return *outputs_.emplace(key, std::make_unique<CallOutputs>(*std::move(learned))).first->second;
}

void OutputMemo::make(const CallOutputs& outputs, const c10::OperatorHandle& op,
                      torch::jit::Stack& stack) {
  TORCH_CHECK(outputs.making == Making::kPhantoms, op.schema().name(), " ", outputs.reason);
  const std::size_t count = op.schema().arguments().size();
  const c10::ArrayRef<c10::IValue> arguments = torch::jit::last(stack, count);
  if (outputs.draws_by_state) {
    TrialRun(op, rules_.of(op), arguments, options_.hidden_keys).draw();
  } else if (outputs.draws > 0) {
    skip_draws(recompute::generator_of(arguments, rules_.of(op).generator_argument()),
               outputs.draws);
  }
  c10::Allocator& memory =
      options_.memory != nullptr ? *options_.memory : PhantomMemory::instance();
  c10::SmallVector<c10::IValue, 4> results;
  {
    Phantoms phantoms(outputs, arguments, memory);
    for (const ResultMade& made : outputs.results) results.push_back(phantoms.result(made));
  }
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  for (c10::IValue& result : results) stack.push_back(std::move(result));
}

}  // namespace spillway::phantoms
