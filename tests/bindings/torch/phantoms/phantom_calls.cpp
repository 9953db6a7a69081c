#include "phantom_calls.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "spillway/phantoms/phantom_memory.h"
#include "spillway/recompute/operator_rules.h"

namespace spillway::phantoms {
namespace {

std::vector<c10::IValue> top(const torch::jit::Stack& stack, std::size_t count) {
  return {stack.end() - static_cast<std::ptrdiff_t>(count), stack.end()};
}

/// All tensors, also undefined ones.
std::vector<Tensor> tensors_in(const std::vector<c10::IValue>& values) {
  std::vector<Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (!value.isList()) continue;
    for (const c10::IValue& one : value.toListRef())
      if (one.isTensor()) tensors.push_back(one.toTensor());
  }
  return tensors;
}

/// A tensor like one given, over addresses that cannot be touched. Empty ones have no address.
Tensor untouchable(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->has_storage()) return tensor;
  const std::size_t bytes = tensor.storage().nbytes();
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, PhantomMemory::instance().allocate(bytes),
      c10::GetAllocator(c10::kCPU), true));
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  c10::TensorImpl& impl = *made.unsafeGetTensorImpl();
  const c10::TensorImpl& shown = *tensor.unsafeGetTensorImpl();
  impl.set_sizes_and_strides(shown.sizes(), shown.strides(), shown.storage_offset());
  if (shown.is_conj()) impl._set_conj(true);
  if (shown.is_neg()) impl._set_neg(true);
  if (shown.is_wrapped_number()) impl.set_wrapped_number(true);
  if (shown.requires_grad()) impl.set_requires_grad(true);
  return made;
}

std::vector<c10::IValue> untouchable(const std::vector<c10::IValue>& values) {
  std::vector<c10::IValue> made;
  for (const c10::IValue& value : values) {
    made.push_back(value);
    if (value.isTensor()) made.back() = untouchable(value.toTensor());
    if (!value.isList() || value.isIntList()) continue;
    c10::List<c10::IValue> list = value.toList().copy();
    for (std::size_t i = 0; i < list.size(); ++i)
      if (const c10::IValue one = list.get(i); one.isTensor())
        list.set(i, untouchable(one.toTensor()));
    made.back() = std::move(list);
  }
  return made;
}

/// Number of the first tensor among some that lies in the same storage; nothing: in none.
std::optional<std::size_t> same_storage(const Tensor& tensor, const std::vector<Tensor>& others) {
  for (std::size_t i = 0; i < others.size(); ++i)
    if (others[i].defined() && others[i].has_storage() &&
        tensor.storage().unsafeGetStorageImpl() == others[i].storage().unsafeGetStorageImpl())
      return i;
  return std::nullopt;
}

void expect_like(const Tensor& phantom, const Tensor& real) {
  ASSERT_EQ(phantom.defined(), real.defined());
  if (!real.defined()) return;
  EXPECT_EQ(phantom.sizes(), real.sizes());
  EXPECT_EQ(phantom.strides(), real.strides());
  EXPECT_EQ(phantom.scalar_type(), real.scalar_type());
  EXPECT_EQ(phantom.storage_offset(), real.storage_offset());
  EXPECT_EQ(phantom.storage().nbytes(), real.storage().nbytes());
  EXPECT_EQ(phantom.storage().data() == nullptr, real.storage().data() == nullptr);
  EXPECT_EQ(phantom.storage().unsafeGetStorageImpl()->resizable(),
            real.storage().unsafeGetStorageImpl()->resizable());
  EXPECT_EQ(phantom.storage().unsafeGetStorageImpl()->allocator(),
            real.storage().unsafeGetStorageImpl()->allocator());
  EXPECT_EQ(phantom.is_conj(), real.is_conj());
  EXPECT_EQ(phantom.is_neg(), real.is_neg());
  EXPECT_EQ(phantom.unsafeGetTensorImpl()->is_wrapped_number(),
            real.unsafeGetTensorImpl()->is_wrapped_number());
  EXPECT_EQ(phantom.key_set(), real.key_set());
  EXPECT_EQ(phantom.is_contiguous(), real.is_contiguous());
  EXPECT_EQ(phantom.suggest_memory_format(), real.suggest_memory_format());
}

struct Made {
  std::vector<c10::IValue> arguments;
  std::vector<c10::IValue> results;
};

void expect_like(const Made& phantom, const Made& real) {
  ASSERT_EQ(phantom.results.size(), real.results.size());
  for (std::size_t i = 0; i < real.results.size(); ++i) {
    EXPECT_EQ(phantom.results[i].tagKind(), real.results[i].tagKind());
    if (!real.results[i].isList()) continue;
    EXPECT_EQ(*phantom.results[i].toList().elementType(), *real.results[i].toList().elementType());
  }
  const std::vector<Tensor> phantoms = tensors_in(phantom.results);
  const std::vector<Tensor> reals = tensors_in(real.results);
  const std::vector<Tensor> phantom_arguments = tensors_in(phantom.arguments);
  const std::vector<Tensor> arguments = tensors_in(real.arguments);
  ASSERT_EQ(phantoms.size(), reals.size());
  for (std::size_t i = 0; i < reals.size(); ++i) {
    SCOPED_TRACE("result " + std::to_string(i));
    expect_like(phantoms[i], reals[i]);
    if (!reals[i].defined()) continue;
    // Arguments of the program's may share storages among themselves; those of the phantoms do not.
    const auto shared = same_storage(phantoms[i], phantom_arguments);
    EXPECT_EQ(shared.has_value(), same_storage(reals[i], arguments).has_value());
    if (shared) {
      EXPECT_TRUE(reals[i].is_alias_of(arguments[*shared]));
      EXPECT_EQ(phantoms[i].is_same(phantom_arguments[*shared]),
                reals[i].is_same(arguments[*shared]));
    }
    EXPECT_EQ(same_storage(phantoms[i], phantoms), same_storage(reals[i], reals));
  }
}

using Bytes = std::vector<char>;

std::vector<Bytes> bytes_of(const std::vector<c10::IValue>& values) {
  std::vector<Bytes> all;
  for (const Tensor& tensor : tensors_in(values)) {
    Bytes& bytes = all.emplace_back();
    if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->has_storage()) continue;
    const auto* begin = static_cast<const char*>(tensor.storage().data());
    if (begin != nullptr) bytes.assign(begin, begin + tensor.storage().nbytes());
  }
  return all;
}

/// What the rules call read is not written.
void expect_read_only(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                      const std::vector<Bytes>& before) {
  const auto& uses = recompute::rules_of(op).uses;
  std::vector<std::pair<Tensor, bool>> tensors;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool is_read = uses[i] == recompute::ArgumentUse::kRead;
    for (const Tensor& tensor : tensors_in({arguments[i]})) tensors.emplace_back(tensor, is_read);
  }
  const std::vector<Bytes> after = bytes_of(arguments);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    bool shares = false;
    for (const auto& [other, is_read] : tensors)
      shares |= !is_read && other.defined() && tensors[i].first.defined() &&
                other.is_alias_of(tensors[i].first);
    if (!tensors[i].second || shares) continue;
    EXPECT_TRUE(after[i] == before[i]) << "tensor " << i << " is written, and nothing says so";
  }
}

at::Generator default_generator() { return at::detail::getDefaultCPUGenerator(); }

Tensor generator_state() { return default_generator().get_state(); }

}  // namespace

PhantomCalls::PhantomCalls() : memo({c10::DispatchKeySet(recompute::kWatchedKey)}) {}

bool PhantomCalls::is_made_of_parts(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto arguments = top(stack, op.schema().arguments().size());
  return memo.outputs_of(op, arguments).making == Making::kParts;
}

void PhantomCalls::around(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                          const std::function<void()>& run) {
  const std::string name = toString(op.operator_name());
  SCOPED_TRACE(name);
  Made real{top(stack, op.schema().arguments().size()), {}};
  const std::vector<Bytes> bytes = bytes_of(real.arguments);
  const Tensor random = generator_state();
  const CallOutputs& learned = memo.outputs_of(op, real.arguments);
  EXPECT_EQ(bytes_of(real.arguments), bytes);
  EXPECT_TRUE(at::equal(random, generator_state()));
  if (learned.making != Making::kPhantoms) {
    refused[name] = learned.reason;
    run();
    return;
  }
  Made phantom{untouchable(real.arguments), {}};
  const std::uint64_t kinds = memo.kinds_learned();
  torch::jit::Stack phantoms = phantom.arguments;
  memo.make(memo.outputs_of(op, phantom.arguments), op, phantoms);
  EXPECT_EQ(memo.kinds_learned(), kinds);
  phantom.results = std::move(phantoms);
  const Tensor moved_on = generator_state();
  default_generator().set_state(random);
  run();
  EXPECT_TRUE(at::equal(moved_on, generator_state()));
  real.results = top(stack, op.schema().returns().size());
  expect_like(phantom, real);
  expect_read_only(op, real.arguments, bytes);
  made[name] += 1;
}

namespace {

bool may_be_refused(const std::string& op, const std::string& reason) {
  constexpr std::array kNames = {"aten::multinomial"};
  constexpr std::array kReasons = {"makes views", "hands out memory without filling it",
                                   "looks at sizes only", "exchanges what its argument shows"};
  const auto is = [](const std::string& text) {
    return [&text](const char* one) { return text == one; };
  };
  return std::any_of(kNames.begin(), kNames.end(), is(op)) ||
         std::any_of(kReasons.begin(), kReasons.end(), is(reason));
}

}  // namespace

void Phantoms::check(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.op);
    PhantomCalls calls;
    one.call();
    // What neither of the tables asks for must not be given up unseen.
    for (const auto& [op, reason] : calls.refused)
      EXPECT_TRUE(may_be_refused(op, reason)) << op << ' ' << reason;
    EXPECT_TRUE(calls.made.contains(one.op) || calls.refused.contains(one.op))
        << ::testing::PrintToString(calls.made);
    const std::uint64_t kinds = calls.memo.kinds_learned();
    one.call();
    EXPECT_EQ(calls.memo.kinds_learned(), kinds);
  }
}

void Phantoms::check_refused(const std::string& reason, const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.op);
    PhantomCalls calls;
    one.call();
    EXPECT_THAT(calls.refused[one.op], ::testing::StartsWith(reason))
        << ::testing::PrintToString(calls.made) << ::testing::PrintToString(calls.refused);
    EXPECT_EQ(calls.made.count(one.op), 0U);
  }
}

}  // namespace spillway::phantoms
