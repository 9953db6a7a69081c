// The runtime with a plan that computes again, without LibTorch.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "named_op.h"
#include "spillway/memory/frame_mapper.h"
#include "spillway/planner/strategies.h"
#include "spillway/runtime/runtime.h"
#include "spillway/swap/spill_store_factory.h"

namespace spillway::runtime {
namespace {

using memory::kPageBytes;
using memory::kPageSize;

constexpr std::size_t kPages = 3;  // Of each storage.
constexpr std::size_t kLayers = 6;
constexpr std::size_t kTightPages = 15;  // Room for five storages, where eight live at once.

std::uint64_t& word(void* memory) { return *static_cast<std::uint64_t*>(memory); }

memory::MapperKind best_mapper() {
  for (const memory::MapperProbe& probe : memory::probe_mappers())
    if (probe.is_viable) return probe.kind;
  throw std::runtime_error("no mapper works here");
}

std::unique_ptr<Runtime> make_runtime(const Clock& clock) {
  swap::SpillStoreOptions store;
  store.kind = swap::StoreKind::kRam;
  store.ram_capacity = kPageSize * 256;
  swap::SwapEngineOptions engine;
  engine.budget = kPageSize * kTightPages;
  engine.arena_size = 8_GiB;
  RuntimeOptions options;
  options.budget = engine.budget;
  options.planning = {.recomputes = true, .strategy = &planner::strategy_named("dtr")};
  return std::make_unique<Runtime>(
      options,
      std::make_unique<swap::SwapEngine>(engine, memory::make_frame_mapper(best_mapper()),
                                         swap::make_spill_store(store).store, clock),
      clock);
}

/// A chain of layers, each of which adds one to what it gets. Its backward pass adds what it finds
/// to one storage of parameters.
class Chain {
 public:
  explicit Chain(Runtime& runtime)
      : runtime_(runtime),
        input_(runtime.allocate(kPages * kPageBytes)),
        parameters_(runtime.allocate(kPages * kPageBytes)) {
    word(input_) = word(parameters_) = 0;
  }
  ~Chain() {
    for (void* const memory : values_) runtime_.deallocate(memory);
    runtime_.deallocate(parameters_);
    runtime_.deallocate(input_);
  }
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void forward() {
    for (std::uint64_t i = 0; i < kLayers; ++i) add_one(i, i == 0 ? input_ : values_.back());
  }
  void backward() {
    for (std::uint64_t i = kLayers; i-- > 0; values_.pop_back()) {
      run(100 + i, {{values_.back()}, {parameters_, true}}, false,
          [&] { word(parameters_) += word(values_.back()); });
      runtime_.deallocate(values_.back());
    }
    runtime_.step_updated();
    runtime_.step_boundary();
  }
  /// An operator that no step has had.
  void stray() {
    run(999, {{parameters_}}, false, [] {});
  }
  /// One that has nothing to do with storages.
  void idle() {
    run(998, {}, false, [] {});
  }

  std::size_t dropped() const {
    std::size_t count = 0;
    for (void* const memory : values_)
      count += runtime_.engine().is_dropped(runtime_.find(memory).range) ? 1 : 0;
    return count;
  }
  std::uint64_t sum() const { return word(parameters_); }

  bool fails = false;  ///< What runs again does.

 private:
  struct Use {
    void* memory;
    bool writes = false;
  };

  class Addition final : public RecordedOp {
   public:
    Addition(Chain& chain, StorageKey in, StorageKey out)
        : chain_(chain), inputs_{in}, outputs_{out} {}
    const std::vector<StorageKey>& inputs() const override { return inputs_; }
    const std::vector<StorageKey>& written() const override { return written_; }
    const std::vector<StorageKey>& outputs() const override { return outputs_; }
    std::vector<ReplayedStorage> replay(const AddressOf& address_of) override {
      if (chain_.fails) throw IoError("the operator cannot run");
      Runtime& runtime = chain_.runtime_;
      void* const out = runtime.allocate(kPages * kPageBytes);
      word(out) = word(address_of(inputs_.front())) + 1;
      const auto give_back = [&runtime](void* memory) { runtime.deallocate(memory); };
      return {{outputs_.front(), out, std::shared_ptr<void>(out, give_back)}};
    }

   private:
    Chain& chain_;
    std::vector<StorageKey> inputs_, written_, outputs_;
  };

  template <typename Body>
  void run(std::uint64_t signature, std::initializer_list<Use> uses, bool is_replayable,
           const Body& body) {
    std::vector<RangeUse> found;
    for (const Use& use : uses) {
      found.push_back(runtime_.find(use.memory));
      found.back().writes = use.writes;
    }
    const NamedOp text("op " + std::to_string(signature));
    runtime_.announce_op();
    runtime_.begin_op(signature, found, text, {.is_replayable = is_replayable});
    body();
    runtime_.end_op();
  }

  void add_one(std::uint64_t signature, void* in) {
    run(signature, {{in}}, true, [&] {
      void* const out = runtime_.allocate(kPages * kPageBytes);
      values_.push_back(out);
      word(out) = word(in) + 1;
      if (runtime_.wants_record())
        runtime_.keep(std::make_unique<Addition>(*this, runtime_.key_of(in), runtime_.key_of(out)));
    });
  }

  Runtime& runtime_;
  void* const input_;
  void* const parameters_;
  std::vector<void*> values_;
};

TEST(RuntimeRecomputing, BringsAllBackAtTheNextOperatorWhenThatHasFailed) {
  const SteadyClock clock;
  const auto runtime = make_runtime(clock);
  Chain chain(*runtime);
  for (int step = 0; step < 6; ++step) {
    chain.forward();
    chain.backward();
  }
  EXPECT_EQ(chain.sum(), 6u * 21u);
  chain.forward();
  ASSERT_GT(chain.dropped(), 0u);
  chain.fails = true;
  EXPECT_THROW(chain.stray(), IoError);
  ASSERT_GT(chain.dropped(), 0u);
  chain.fails = false;
  chain.idle();
  EXPECT_EQ(chain.dropped(), 0u);
  chain.backward();
  EXPECT_EQ(chain.sum(), 7u * 21u);
}

}  // namespace
}  // namespace spillway::runtime
