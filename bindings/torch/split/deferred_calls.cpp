#include "deferred_calls.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "spillway/phantoms/operator_names.h"
#include "spillway/recompute/operator_cache.h"
#include "spillway/recompute/operator_rules.h"

namespace spillway::split {
namespace {

using phantoms::is_any;
using pipeline::StorageOrdinal;

constexpr std::uint64_t kMostCalls = std::uint64_t{1} << 14;  ///< Some KiB each.
constexpr std::uint32_t kDeepest = 256;

}  // namespace

DeferRule::DeferRule(const c10::OperatorHandle& op) {
  const std::string_view name = op.operator_name().name;
  // An `out` argument may be of another size before.
  if (op.operator_name().overload_name.find("out") != std::string::npos) return;
  overwrites = is_any(name, {"aten::fill_", "aten::zero_", "aten::copy_"}) ||
               phantoms::fills_by_draws(name, op.operator_name().overload_name);
  of_any_type =
      overwrites ||
      is_any(name, {"aten::zeros",     "aten::ones",       "aten::full",      "aten::zeros_like",
                    "aten::ones_like", "aten::full_like",  "aten::new_zeros", "aten::new_ones",
                    "aten::new_full",  "aten::rand",       "aten::randn",     "aten::randint",
                    "aten::rand_like", "aten::randn_like", "aten::eye",       "aten::arange",
                    "aten::clone",     "aten::_to_copy",   "aten::tril",      "aten::triu",
                    "aten::tril_",     "aten::triu_",      "aten::cat",       "aten::stack"});
  // What optimizers do to states alone.
  const bool is_of_list =
      is_any(name, {"aten::_foreach_mul_", "aten::_foreach_add_", "aten::_foreach_sub_"}) &&
      op.operator_name().overload_name.starts_with("Scalar");
  may_wait = of_any_type || is_of_list ||
             (op.hasTag(at::Tag::pointwise) && name.starts_with("aten::") &&
              name.find("bernoulli") == std::string_view::npos);
  const std::string& overload = op.operator_name().overload_name;
  with_generator = c10::Dispatcher::singleton().findSchema(
      {op.operator_name().name, overload.empty() ? "generator" : overload + "_generator"});
  if (!with_generator) return;
  const auto& arguments = with_generator->schema().arguments();
  while (generator_argument < arguments.size() &&
         arguments[generator_argument].name() != "generator")
    ++generator_argument;
  if (arguments.size() != op.schema().arguments().size() + 1) with_generator.reset();
}

const DeferRule& DeferRule::of(const c10::OperatorHandle& op) {
  thread_local recompute::OperatorCache<DeferRule> rules;
  return rules.of(op);
}

void draw_from(const at::Generator& generator, PendingCall& call) {
  const int own = recompute::rules_of(call.op).generator_argument;
  if (own >= 0) {
    call.arguments[static_cast<std::size_t>(own)] = generator;
    return;
  }
  const DeferRule& rule = DeferRule::of(call.op);
  call.op = rule.with_generator.value();
  call.arguments.insert(
      call.arguments.begin() + static_cast<std::ptrdiff_t>(rule.generator_argument), generator);
  for (ArgumentTensor& tensor : call.tensors)
    if (tensor.argument >= rule.generator_argument) ++tensor.argument;
}

bool shows_all(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
         static_cast<std::size_t>(tensor.numel()) * tensor.element_size() ==
             tensor.storage().nbytes();
}

DeferredCalls::DeferredCalls(Executor& executor, Submit submit)
    : executor_(executor), submit_(std::move(submit)) {}

bool DeferredCalls::has_room(std::span<const StorageOrdinal> used) const {
  if (waiting_ >= kMostCalls) return false;
  return std::all_of(used.begin(), used.end(), [&](StorageOrdinal storage) {
    const auto found = entries_.find(storage);
    return found == entries_.end() || found->second.writer == nullptr ||
           found->second.writer->is_done || found->second.writer->depth < kDeepest;
  });
}

bool DeferredCalls::are_here(StorageOrdinal storage) const {
  const auto found = entries_.find(storage);
  return found != entries_.end() && found->second.writer != nullptr &&
         !found->second.writer->is_done;
}

DeferredCalls::Entry& DeferredCalls::entry_of(StorageOrdinal storage) {
  Entry& entry = entries_[storage];
  if (entry.name == nullptr)
    // Bytes under a name of this rank alone end with the last call that uses them.
    entry.name = std::shared_ptr<Name>(new Name{storage}, [this](Name* name) {
      if (name->is_own && executor_.has(name->storage)) executor_.add_drop(name->storage);
      delete name;
    });
  return entry;
}

std::vector<std::shared_ptr<DeferredCalls::Call>> DeferredCalls::waiting_users(const Name& name) {
  std::vector<std::shared_ptr<Call>> waiting;
  for (const std::weak_ptr<Call>& user : name.users)
    if (auto call = user.lock(); call != nullptr && !call->is_done)
      waiting.push_back(std::move(call));
  return waiting;
}

void DeferredCalls::add(PendingCall call, std::span<const StorageOrdinal> reads,
                        std::span<const Written> writes) {
  const auto added =
      std::shared_ptr<Call>(new Call(std::move(call), added_++), [this](Call* ended) {
        if (!ended->is_done) --waiting_;
        delete ended;
      });
  ++waiting_;
  const auto is_written = [&](StorageOrdinal storage) {
    return std::any_of(writes.begin(), writes.end(),
                       [&](const Written& one) { return one.storage == storage; });
  };
  for (const StorageOrdinal storage : reads)
    if (!is_written(storage)) use(added, storage, false);
  for (const Written& one : writes) {
    // A parameter stays one where `.data` fills it again.
    bool is_parameter = one.is_parameter;
    if (one.begins_anew) {
      const auto before = entries_.find(one.storage);
      is_parameter |= before != entries_.end() && before->second.is_parameter;
      drop(one.storage);
      added->call.blanks.push_back({0, one.storage, Bytes(one.seen->nbytes()), one.seen->device()});
    }
    use(added, one.storage, true);
    Entry& entry = entry_of(one.storage);
    entry.writer = added;
    entry.is_parameter |= is_parameter;
    entry.seen.emplace(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(one.seen));
  }
}

void DeferredCalls::use(const std::shared_ptr<Call>& call, StorageOrdinal storage, bool writes) {
  const auto is_same = [&](const Call::Use& one) { return one.storage == storage; };
  if (std::any_of(call->uses.begin(), call->uses.end(), is_same)) return;
  Entry& entry = entry_of(storage);
  std::vector<std::weak_ptr<Call>>& users = entry.name->users;
  if (entry.writer != nullptr && !entry.writer->is_done) {
    call->after.push_back(entry.writer);
    call->depth = std::max(call->depth, entry.writer->depth + 1);
  }
  if (writes) {
    const auto waiting = waiting_users(*entry.name);
    call->later_than.insert(call->later_than.end(), waiting.begin(), waiting.end());
  }
  std::erase_if(users, [](const std::weak_ptr<Call>& user) { return user.expired(); });
  users.push_back(call);
  call->uses.push_back({storage, entry.name, writes});
}

void DeferredCalls::want(StorageOrdinal storage, bool writes) {
  const auto found = entries_.find(storage);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  std::vector<std::shared_ptr<Call>> wanted;
  if (writes) wanted = waiting_users(*entry.name);
  if (entry.writer != nullptr) wanted.push_back(std::move(entry.writer));
  release(std::move(wanted));
}

void DeferredCalls::drop(StorageOrdinal storage) {
  const auto found = entries_.find(storage);
  if (found != entries_.end()) {
    const std::shared_ptr<Name> name = found->second.name;
    entries_.erase(found);  // With what only this storage has needed.
    if (executor_.has(storage)) {
      release(waiting_users(*name));
    } else {
      name->storage = StorageOrdinal(own_--);
      name->is_own = true;
    }
  }
  if (executor_.has(storage)) executor_.add_drop(storage);
}

void DeferredCalls::for_each_but_parameters(
    const std::function<void(StorageOrdinal, c10::StorageImpl&)>& visit) const {
  for (const auto& [storage, entry] : entries_)
    if (entry.seen && !entry.is_parameter)
      if (const auto seen = entry.seen->lock()) visit(storage, *seen);
}

/// With all that they wait for, in the order of the program.
void DeferredCalls::release(std::vector<std::shared_ptr<Call>> calls) {
  std::unordered_set<const Call*> found;
  std::vector<std::shared_ptr<Call>> released;
  while (!calls.empty()) {
    std::shared_ptr<Call> call = std::move(calls.back());
    calls.pop_back();
    if (call->is_done || !found.insert(call.get()).second) continue;
    calls.insert(calls.end(), call->after.begin(), call->after.end());
    for (const std::weak_ptr<Call>& earlier : call->later_than)
      if (auto waiting = earlier.lock()) calls.push_back(std::move(waiting));
    released.push_back(std::move(call));
  }
  std::sort(released.begin(), released.end(),
            [](const auto& a, const auto& b) { return a->number < b->number; });
  for (const std::shared_ptr<Call>& call : released) hand_on(*call);
}

void DeferredCalls::hand_on(Call& call) {
  PendingCall given = std::move(call.call);
  std::vector<StorageOrdinal> reads, writes;
  const auto rename = [](auto& all, const Call::Use& use) {
    for (auto& one : all)
      if (one.storage == use.storage) one.storage = use.name->storage;
  };
  for (const Call::Use& use : call.uses) {
    (use.writes ? writes : reads).push_back(use.name->storage);
    if (!use.name->is_own) continue;
    rename(given.tensors, use);
    rename(given.results, use);
    rename(given.blanks, use);
  }
  submit_(std::move(given), reads, writes);
  call.is_done = true;
  --waiting_;
  call.after.clear();
  call.later_than.clear();
  call.uses.clear();
}

}  // namespace spillway::split
