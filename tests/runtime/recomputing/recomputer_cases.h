#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "spillway/memory/host_pages.h"
#include "spillway/runtime/recomputing/recomputer.h"
#include "spillway/swap/spill_store_factory.h"
#include "spillway/swap/swap_engine.h"
#include "support/best_mapper.h"

namespace spillway::runtime {

using memory::kPageBytes;
using memory::kPageSize;

inline constexpr std::size_t kPages = 2;
inline constexpr int kNoFailure = 1 << 30;

inline std::uint64_t& word(void* memory) { return *static_cast<std::uint64_t*>(memory); }

/// A storage as the trainer sees it.
struct Tensor {
  std::byte* memory = nullptr;
  StorageId storage;
};

/// Storages that are dropped and recomputed, with a real engine and operators made of
/// arithmetic.
class RecomputerTest : public ::testing::Test {
 protected:
  explicit RecomputerTest(memory::MapperKind mapper = best_mapper()) {
    swap::SpillStoreOptions store;
    store.kind = swap::StoreKind::kRam;
    store.ram_capacity = kPageSize * 256;
    swap::SwapEngineOptions options;
    options.budget = kPageSize * 24;
    options.arena_size = 8_GiB;
    engine_ = std::make_unique<swap::SwapEngine>(options, memory::make_host_pages(mapper),
                                                 swap::make_spill_store(store).store, clock_);
    recomputer_ = std::make_unique<Recomputer>(
        Recomputer::Memory{*engine_, *engine_, *engine_},
        [this](OpIndex, const RecordedCall&, std::span<const RangeUse> uses,
               const ReplayBody& body) {
          swap::PinSet pins;
          engine_->pin(pins, uses);
          pins_ = &pins;
          body.compute();
          body.take(pins);
          pins_ = nullptr;
          engine_->unpin(pins);
        });
  }

  Tensor tensor() {
    const auto made = engine_->allocate(kPageSize * kPages, pins_);
    return {made.address, made.storage};
  }
  Tensor tensor(std::uint64_t number) {
    const Tensor made = tensor();
    word(made.memory) = number;
    return made;
  }

  /// out = in + addend, recorded as `place`.
  Tensor add(const Tensor& in, std::uint64_t addend, OpIndex place) {
    announce(in, false, true);
    const Tensor out = tensor();
    word(out.memory) = word(in.memory) + addend;
    note("add" + std::to_string(addend));
    recomputer_->keep(place, call(addend, {{in.storage}}, out.storage));
    return out;
  }

  /// out = a + b, recorded as `place`.
  Tensor sum(const Tensor& a, const Tensor& b, OpIndex place) {
    announce(a, false, true);
    announce(b, false, true);
    const Tensor out = tensor();
    word(out.memory) = word(a.memory) + word(b.memory);
    note("sum");
    recomputer_->keep(place, call(0, {{a.storage}, {b.storage}}, out.storage));
    return out;
  }

  /// in = 3 * in, recorded as `place`.
  void triple(const Tensor& in, OpIndex place) {
    announce(in, true, true);
    word(in.memory) *= 3;
    note("triple");
    recomputer_->keep(place, call(0, {{in.storage, true}}, StorageId()));
  }

  void announce(const Tensor& in, bool writes, bool is_recorded) {
    const RangeUse use{in.storage, kPages, writes};
    recomputer_->before_op({&use, 1}, is_recorded);
    if (!writes) return;
    swap::PinSet pins;  // Which opens its pages.
    engine_->pin(pins, {&use, 1});
    engine_->unpin(pins);
  }

  void free(const Tensor& tensor) {
    if (recomputer_->may_end(tensor.storage)) engine_->release(tensor.storage);
  }

  std::vector<StorageId> take_ended() {
    std::vector<StorageId> storages;
    for (const Recomputer::Ended& each : recomputer_->take_ended())
      storages.push_back(each.storage);
    return storages;
  }

  /// As an operator that nobody recorded reads it.
  std::uint64_t read(const Tensor& in) {
    announce(in, false, false);
    EXPECT_FALSE(engine_->is_dropped(in.storage));
    return word(in.memory);
  }

  /// Why an operator that reads it is refused; empty: it is not.
  std::string refusal_of(const Tensor& in) {
    try {
      read(in);
    } catch (const RecomputeError& error) {
      return error.what();
    }
    return {};
  }

  void note(const std::string& what) { ran_ += what + " "; }

  class Operator final : public recompute::CallBody {
   public:
    Operator(RecomputerTest& test, std::uint64_t addend) : test_(test), addend_(addend) {}
    std::string name() const override { return "an operator"; }
    Bytes bytes_held() const override { return Bytes(); }

    std::vector<recompute::OutputMemory> run(const RecordedCall& call,
                                             const recompute::AddressOf& address_of) override {
      void* const in = address_of(call.inputs.front().id);
      if (test_.runs_left_ == 0 || test_.failures_left_ > 0) {
        --test_.failures_left_;
        throw IoError("the operator cannot run");
      }
      --test_.runs_left_;
      if (call.outputs.empty()) {
        word(in) *= 3;
        test_.note("triple");
        return {};
      }
      const Tensor out = test_.tensor();
      if (call.inputs.size() == 1) {
        word(out.memory) = word(in) + addend_;
        test_.note("add" + std::to_string(addend_));
      } else {
        word(out.memory) = word(in) + word(address_of(call.inputs.back().id));
        test_.note("sum");
      }
      test_.most_temporaries_ = std::max(test_.most_temporaries_, ++test_.temporaries_);
      const auto give_back = [this, out](void*) {
        --test_.temporaries_;
        test_.engine_->release(out.storage);
      };
      return {{call.outputs.front().id, out.memory, kPageSize * kPages,
               std::shared_ptr<void>(out.memory, give_back)}};
    }

   private:
    RecomputerTest& test_;
    std::uint64_t addend_;
  };

  RecordedCall call(std::uint64_t addend, std::vector<recompute::StorageUse> inputs,
                    StorageId out) {
    RecordedCall made(std::make_unique<Operator>(*this, addend));
    made.inputs = std::move(inputs);
    if (out.is_some()) made.outputs = {{out, kPageSize * kPages}};
    return made;
  }

  SteadyClock clock_;
  std::unique_ptr<swap::SwapEngine> engine_;
  std::unique_ptr<Recomputer> recomputer_;
  swap::PinSet* pins_ = nullptr;
  std::string ran_;
  int temporaries_ = 0;
  int most_temporaries_ = 0;
  std::atomic<int> runs_left_ = kNoFailure;  ///< Operators that run again before all fail.
  std::atomic<int> failures_left_ = 0;       ///< Operators that fail before others run again.
};

}  // namespace spillway::runtime
