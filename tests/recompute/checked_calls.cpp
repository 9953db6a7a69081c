#include "checked_calls.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace spillway::recompute {
namespace {

using Bytes8 = std::vector<std::byte>;

Bytes8 bytes_at(const void* data, std::size_t size) {
  const auto* begin = static_cast<const std::byte*>(data);
  return {begin, begin + size};
}

bool has_bytes(const void* data, const Bytes8& bytes) {
  return std::memcmp(data, bytes.data(), bytes.size()) == 0;
}

std::vector<at::Tensor> tensors_in(c10::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  const auto add = [&](const c10::IValue& value) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage())
      tensors.push_back(value.toTensor());
  };
  for (const c10::IValue& value : values) {
    add(value);
    if (!value.isList()) continue;
    for (const c10::IValue& element : value.toListRef()) add(element);
  }
  return tensors;
}

/// All storages among some values, with their bytes.
class Snapshot {
 public:
  explicit Snapshot(c10::ArrayRef<c10::IValue> values) {
    for (const at::Tensor& tensor : tensors_in(values)) add(tensor);
  }
  bool is_unchanged() const {
    for (const auto& [storage, bytes] : parts_)
      if (!has_bytes(storage.data(), bytes)) return false;
    return true;
  }
  /// What the call wrote that is paged; small storages are the trainer's, replays leave them alone.
  void put_back_written(const RecordedCall& record) const {
    for (const auto& [storage, bytes] : parts_) {
      const StorageId id = PagedTable::instance().find(storage.data()).id;
      for (const StorageUse& use : record.inputs)
        if (use.written && use.id == id)
          std::memcpy(storage.mutable_data(), bytes.data(), bytes.size());
    }
  }

 private:
  void add(const at::Tensor& tensor) {
    if (tensor.storage().data() == nullptr) return;
    parts_.emplace_back(tensor.storage(),
                        bytes_at(tensor.storage().data(), tensor.storage().nbytes()));
  }
  std::vector<std::pair<c10::Storage, Bytes8>> parts_;
};

c10::ArrayRef<c10::IValue> top(const std::vector<c10::IValue>& stack, std::size_t count) {
  // Not in braces: they would make a list of two values.
  return c10::ArrayRef<c10::IValue>(stack.data() + (stack.size() - count), count);
}

at::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

/// Bytes of a storage up to the last that a tensor shows.
std::size_t shown_end(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  std::int64_t last = tensor.storage_offset();
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return static_cast<std::size_t>(last + 1) * tensor.itemsize();
}

/// A call that has just run, about to run again.
class Recomputed {
 public:
  Recomputed(const RecordedCall& record, c10::ArrayRef<c10::IValue> results, const Snapshot& before,
             const Snapshot& after)
      : record_(record), before_(before), after_(after) {
    for (const StorageMade& made : record_.outputs) {
      void* address = PagedTable::instance().address_of(made.id);
      places_.push_back(address);
      // Some results lie in more memory than they show, whose rest is never the same.
      std::size_t shown = 0;
      for (const at::Tensor& result : tensors_in(results))
        if (result.storage().data() == address) shown = std::max(shown, shown_end(result));
      right_.push_back(bytes_at(address, shown));
    }
  }

  /// The results are overwritten before, and are what the replay gave afterwards.
  void run() {
    before_.put_back_written(record_);
    for (std::size_t i = 0; i < places_.size(); ++i)
      std::memset(places_[i], 0xA5, record_.outputs[i].bytes.count());
    const std::vector<OutputMemory> replayed = record_.run(address_of_);
    ASSERT_EQ(replayed.size(), right_.size());
    for (std::size_t i = 0; i < right_.size(); ++i) {
      EXPECT_EQ(replayed[i].id, record_.outputs[i].id);
      EXPECT_NE(replayed[i].address, places_[i]);
      EXPECT_TRUE(has_bytes(replayed[i].address, right_[i])) << "output " << i;
      std::memcpy(places_[i], replayed[i].address, replayed[i].bytes.count());
    }
    EXPECT_TRUE(after_.is_unchanged());
  }

 private:
  const RecordedCall& record_;
  const Snapshot& before_;  ///< Of what the call writes.
  const Snapshot& after_;
  std::vector<void*> places_;
  std::vector<Bytes8> right_;
  AddressOf address_of_ = [](StorageId id) { return PagedTable::instance().address_of(id); };
};

}  // namespace

void replay_in_place(const RecordedCall& call, const AddressOf& address_of) {
  for (const OutputMemory& output : call.run(address_of)) {
    void* address = PagedTable::instance().address_of(output.id);
    if (address != nullptr) std::memcpy(address, output.address, output.bytes.count());
  }
}

std::shared_ptr<ReplayEngine> make_engine(ReplayEngineOptions options) {
  PagedTable& table = PagedTable::instance();
  options.hidden_keys = c10::DispatchKeySet(kWatchedKey);
  options.give_back = [](void* memory) { PagedTable::instance().give_back(memory); };
  const std::shared_ptr<ReplayEngine> made(
      new ReplayEngine([](const void* data) { return PagedTable::instance().find(data); },
                       std::move(options)),
      [&table](ReplayEngine* engine) {
        table.told = nullptr;
        delete engine;
      });
  table.told = made.get();
  return made;
}

void CheckedCalls::around(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
                          const std::function<void()>& run) {
  const std::string name = toString(op.operator_name());
  SCOPED_TRACE(name);
  std::string objection;
  const std::vector<c10::IValue> arguments = top(stack, op.schema().arguments().size()).vec();
  auto record = engine_.record(op, arguments, &objection);
  if (record) engine_.prepare_verification(*record);
  const Snapshot before(arguments);
  engine_.before_call(op, arguments);
  run();
  const auto results = top(stack, op.schema().returns().size());
  if (!record || !engine_.complete(*record, results, &objection)) {
    refused[name] = objection;
    return;
  }
  const at::Tensor random = generator_state();
  const Snapshot after(arguments);
  Recomputed recomputed(*record, results, before, after);
  EXPECT_EQ(engine_.verify(*record, results), "");
  recomputed.run();
  EXPECT_TRUE(at::equal(random, generator_state()));
  replayed[name] += 1;
}

void CallsOfTrainer::around(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
                            const std::function<void()>& run) {
  Entry entry{toString(op.operator_name()), std::nullopt, {}};
  {
    const auto arguments = top(stack, op.schema().arguments().size());
    entry.record = engine_.record(op, arguments, &entry.objection);
    engine_.before_call(op, arguments);
  }
  run();
  const auto results = top(stack, op.schema().returns().size());
  if (entry.record && !engine_.complete(*entry.record, results, &entry.objection))
    entry.record.reset();
  entries.push_back(std::move(entry));
}

CallsOfTrainer::Entry& CallsOfTrainer::of(const std::string& name) {
  Entry* found = nullptr;
  for (Entry& entry : entries) {
    if (entry.name != name) continue;
    EXPECT_EQ(found, nullptr) << name << " was called more than once";
    found = &entry;
  }
  if (found == nullptr) throw std::out_of_range(name + " was not called");
  return *found;
}

}  // namespace spillway::recompute
