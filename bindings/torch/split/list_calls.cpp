#include "list_calls.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "deferred_calls.h"
#include "spillway/recompute/element_lists.h"

namespace spillway::split {
namespace {

/// Which argument of such a call is a number that it raises where it finds something in a tensor.
std::optional<std::size_t> found_argument(const c10::OperatorHandle& op) {
  if (op.operator_name().name != recompute::kUnscale) return std::nullopt;
  return op.schema().argumentIndexWithName("found_inf");
}

/// To the other one, where that is larger.
void raise(const at::Tensor& number, const at::Tensor& to, c10::DispatchKeySet below,
           const runtime::OpTraits& traits, RunOperator run) {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::clamp_min_", "Tensor");
  torch::jit::Stack stack{number, to};
  run(op, below, stack, traits);
}

at::Tensor copy_of(const at::Tensor& tensor, c10::DispatchKeySet below,
                   const runtime::OpTraits& traits, RunOperator run) {
  torch::jit::Stack stack{tensor};
  run_clone(below, stack, traits, run);
  return stack.back().toTensor();
}

}  // namespace

bool is_by_element(const CalledOperator& called) {
  return recompute::is_by_element(called.op, called.arguments);
}

std::vector<ListMembers> by_place(const CalledOperator& called, FactsOf facts_of) {
  const c10::ArrayRef<c10::IValue> arguments = called.arguments;
  const auto place_of = [&](const at::Tensor& tensor) {
    const pipeline::StorageFacts* const facts = facts_of(tensor);
    if (facts == nullptr) return Rank();
    return facts->home.is_some() ? facts->home : facts->computed_by;
  };
  const auto is_replicated = [&](const at::Tensor& tensor) {
    const pipeline::StorageFacts* const facts = facts_of(tensor);
    return facts != nullptr && facts->is_replicated;
  };
  std::vector<Rank> ranks(arguments[0].toTensorList().size());
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensorList() || argument.toTensorList().size() != ranks.size()) continue;
    const c10::List<at::Tensor> list = argument.toTensorList();
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (!ranks[i].is_some()) ranks[i] = place_of(list.get(i));
  }
  std::map<std::pair<bool, Rank>, ListMembers> placed;
  std::vector<ListMembers> groups;
  const bool may_wait = DeferRule::of(called.op).may_wait;
  const c10::List<at::Tensor> first = arguments[0].toTensorList();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (may_wait && !ranks[i].is_some() && first.get(i).nbytes() >= kSmall) {
      groups.push_back({i});
    } else {
      placed[{is_replicated(first.get(i)), ranks[i]}].push_back(i);
    }
  }
  for (auto& [place, members] : placed) groups.push_back(std::move(members));
  return groups;
}

void run_in_groups(const CalledOperator& called, const std::vector<ListMembers>& groups,
                   RunOperator run) {
  const auto& [op, below, stack, traits, name, arguments] = called;
  const torch::jit::Stack whole(arguments.begin(), arguments.end());
  torch::jit::drop(stack, whole.size());
  const std::size_t size = whole[0].toListRef().size();
  std::vector<at::Tensor> results(size);
  const auto found = found_argument(op);
  std::vector<at::Tensor> founds;
  runtime::OpTraits beside = traits;  // Of operators before and behind the one that is called.
  beside.autograd = {.phase = OpPhase::kOther};
  for (std::size_t i = 1; found && i < groups.size(); ++i)
    founds.push_back(copy_of(whole[*found].toTensor(), below, beside, run));
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const ListMembers& members = groups[group];
    torch::jit::Stack part = recompute::arguments_for(whole, members);
    // One after the other writes its own: none waits for what another one has found.
    if (found && group > 0) part[*found] = founds[group - 1];
    run(op, below, part, traits);
    if (part.empty()) continue;  // It writes in place.
    for (std::size_t i = 0; i < members.size(); ++i)
      results[members[i]] = part.back().toTensorList().get(i);
  }
  for (const at::Tensor& one : founds) raise(whole[*found].toTensor(), one, below, beside, run);
  if (!op.schema().returns().empty()) stack.emplace_back(std::move(results));
}

void run_clone(c10::DispatchKeySet below, torch::jit::Stack& stack, const runtime::OpTraits& traits,
               RunOperator run) {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
  stack.emplace_back();  // The memory format stays.
  run(op, below, stack, traits);
}

}  // namespace spillway::split
