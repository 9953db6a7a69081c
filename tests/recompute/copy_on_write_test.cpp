// What records keep of tensors that are not paged.

#include <ATen/ATen.h>
#include <ATen/native/Resize.h>
#include <gmock/gmock.h>

#include <vector>

#include "checked_calls.h"
#include "kept_storages.h"

namespace spillway::recompute {
namespace {

using at::Tensor;

constexpr std::int64_t kSmall = 100;        // 400 bytes: copied.
constexpr std::int64_t kMiddle = 64 << 10;  // 256 KiB: referred to.
constexpr std::int64_t kLarge = 512 << 10;  // 2 MiB: paged.

class KeptTensors : public ::testing::Test {
 protected:
  KeptTensors() {
    table_.paged_from = 1 << 20;
    at::manual_seed(7);
  }
  ~KeptTensors() override { table_.paged_from = 4096; }

  /// `large + part`, recorded, with `part` repeated along the rows.
  struct Sum {
    std::optional<RecordedCall> record;
    std::string objection;
    Tensor result;
  };
  Sum add(const Tensor& part) {
    CallsOfTrainer calls(*engine_);
    Sum sum;
    {
      const Watched watched(calls);
      sum.result = at::add(large_.view({-1, part.numel()}), part);
    }
    auto& entry = calls.of("aten::add.Tensor");
    sum.record = std::move(entry.record);
    sum.objection = entry.objection;
    return sum;
  }

  /// Whether a replay gives what the call gave.
  bool is_repeated(const Sum& sum) {
    const auto address_of = [](StorageId id) { return PagedTable::instance().address_of(id); };
    const auto replayed = sum.record->run(address_of);
    const OutputMemory& made = replayed.at(0);
    return std::memcmp(made.address, sum.result.const_data_ptr(), made.bytes.count()) == 0;
  }

  /// Runs operators as a trainer does, with the engine told before each.
  template <typename Trainer>
  void train(Trainer trainer) {
    CallsOfTrainer calls(*engine_);
    const Watched watched(calls);
    trainer();
  }

  PagedTable& table_ = PagedTable::instance();  ///< Before the first tensor.
  std::shared_ptr<ReplayEngine> engine_ = make_engine();
  Tensor large_ = at::randn({kLarge});
};

TEST_F(KeptTensors, SmallOnesAreCopied) {
  Tensor part = at::randn({kSmall});
  large_ = at::randn({4000 * kSmall});
  const Sum sum = add(part);
  EXPECT_GE(engine_->bytes_held(), Bytes(400));
  EXPECT_LE(engine_->bytes_held(), Bytes(464));
  EXPECT_GE(sum.record->bytes_held(), engine_->bytes_held());
  std::memset(part.mutable_data_ptr(), 0, 400);  // Past the operators, even.
  EXPECT_TRUE(is_repeated(sum));
}

TEST_F(KeptTensors, LargerOnesAreReferredToUntilTheyAreWritten) {
  Tensor part = at::randn({kMiddle});
  const Sum sum = add(part);
  EXPECT_EQ(engine_->bytes_held(), Bytes(0));
  EXPECT_TRUE(is_repeated(sum));
  train([&] { part.add_(1); });
  EXPECT_EQ(engine_->bytes_held(), Bytes(kMiddle * 4));
  EXPECT_TRUE(is_repeated(sum));
}

TEST_F(KeptTensors, EachVersionIsKeptOnceForAllItsRecords) {
  Tensor part = at::randn({kMiddle});
  const Sum first = add(part);
  const Sum second = add(part);
  train([&] { part.mul_(2); });
  EXPECT_EQ(engine_->bytes_held(), Bytes(kMiddle * 4));
  const Sum third = add(part);
  train([&] { at::mul_out(part, part, part); });
  EXPECT_EQ(engine_->bytes_held(), Bytes(2 * kMiddle * 4));
  EXPECT_TRUE(is_repeated(first));
  EXPECT_TRUE(is_repeated(second));
  EXPECT_TRUE(is_repeated(third));
}

// They were known by their storage.
TEST_F(KeptTensors, AreKnownByTheirMemory) {
  Tensor part = at::randn({kMiddle});
  Tensor other = at::randn({kMiddle});
  const Sum first = add(part);
  train([&] { other.mul_(2); });
  EXPECT_EQ(engine_->bytes_held(), Bytes(0));
  const Tensor alias = at::from_blob(part.mutable_data_ptr(), {8, kMiddle / 8});
  train([&] { alias.add_(1); });
  EXPECT_EQ(engine_->bytes_held(), Bytes(kMiddle * 4));
  EXPECT_TRUE(is_repeated(first));
  const Sum second = add(part);
  const Tensor tail = at::from_blob(part.mutable_data_ptr<float>() + kMiddle - 5, {5});
  train([&] { tail.neg_(); });
  EXPECT_EQ(engine_->bytes_held(), Bytes(2 * kMiddle * 4));
  EXPECT_TRUE(is_repeated(second));
  EXPECT_TRUE(is_repeated(first));
}

TEST_F(KeptTensors, AreWrittenThroughSparseOnes) {
  const Tensor values = at::randn({kMiddle});
  const Tensor sparse = at::_sparse_coo_tensor_unsafe(at::arange(kMiddle).unsqueeze(0), values,
                                                      {kMiddle}, values.options());
  const Sum sum = add(values);
  const float first = values[0].item<float>();
  train([&] { sparse._coalesced_(true).neg_(); });
  ASSERT_EQ(values[0].item<float>(), -first) << "the sparse tensor has values of its own";
  EXPECT_TRUE(is_repeated(sum));
}

// Past all operators, as trainers do that shard their parameters.
TEST_F(KeptTensors, AreHeldWhenTheirStorageTakesOtherMemory) {
  Tensor part = at::randn({kMiddle});
  const Sum sum = add(part);
  c10::StorageImpl* const storage = part.storage().unsafeGetStorageImpl();
  at::native::resize_bytes_cpu(storage, 0);
  at::native::resize_bytes_cpu(storage, kMiddle * 4);
  train([&] { part.fill_(3); });
  EXPECT_TRUE(is_repeated(sum));
}

TEST_F(KeptTensors, AreFoundInTheStorageThatHasTheirMemoryNow) {
  const Tensor part = at::randn({kMiddle});
  const Tensor other = at::randn({kMiddle});
  const Sum sum = add(part);
  c10::DataPtr memory = part.storage().set_data_ptr(c10::DataPtr());
  memory = other.storage().set_data_ptr(std::move(memory));
  part.storage().set_data_ptr_noswap(std::move(memory));
  EXPECT_TRUE(is_repeated(sum));
  train([&] { part.add_(1); });
  EXPECT_EQ(engine_->bytes_held(), Bytes(0));
  train([&] { other.add_(1); });
  EXPECT_EQ(engine_->bytes_held(), Bytes(kMiddle * 4));
  EXPECT_TRUE(is_repeated(sum));
}

TEST_F(KeptTensors, TellHowMuchWasCopiedAtOnce) {
  for (int i = 0; i < 3; ++i) {
    Tensor part = at::randn({kMiddle});
    const Sum sum = add(part);
    train([&] { part.add_(1); });
  }
  EXPECT_EQ(engine_->bytes_held(), Bytes(0));
  EXPECT_EQ(engine_->most_copied(), Bytes(kMiddle * 4));
}

TEST_F(KeptTensors, RunningStatisticsCountAsWritten) {
  Tensor mean = at::zeros({kMiddle});
  Tensor variance = at::ones({kMiddle});
  const Sum sum = add(mean);
  train([&] {
    at::native_batch_norm(at::randn({2, kMiddle}), {}, {}, mean, variance, true, 0.1, 1e-5);
  });
  EXPECT_GT(mean.abs().sum().item<float>(), 0);
  EXPECT_TRUE(is_repeated(sum));
}

TEST_F(KeptTensors, AreHeldWhenTheTrainerHasGivenThemUp) {
  Tensor part = at::randn({kMiddle});
  Sum sum = add(part);
  part = Tensor();
  EXPECT_EQ(engine_->bytes_held(), Bytes(kMiddle * 4));
  EXPECT_TRUE(is_repeated(sum));
  sum.record.reset();
  EXPECT_EQ(engine_->bytes_held(), Bytes(0));
}

// A gradient whose storage somebody else has is copied by autograd, not taken over or added to.
TEST_F(KeptTensors, HaveTheReferenceCountsThatTheyHaveWithoutRecords) {
  for (const std::int64_t size : {kSmall, kMiddle, kLarge}) {
    large_ = at::randn({4000 * kSmall});
    if (size != kSmall) large_ = at::randn({kLarge});
    const Tensor part = at::randn({size});
    const Sum sum = add(part);
    ASSERT_TRUE(sum.record) << sum.objection;
    EXPECT_EQ(part.use_count(), 1u) << size;
    EXPECT_EQ(part.storage().use_count(), 1u) << size;
    EXPECT_EQ(sum.result.use_count(), 1u) << size;
    EXPECT_EQ(sum.result.storage().use_count(), 1u) << size;
  }
}

TEST_F(KeptTensors, CopiesGoWithTheirRecords) {
  Tensor part = at::randn({kMiddle});
  {
    const Sum first = add(part);
    const Sum second = add(part);
    train([&] { part.add_(1); });
    EXPECT_EQ(engine_->bytes_held(), Bytes(kMiddle * 4));
  }
  EXPECT_EQ(engine_->bytes_held(), Bytes(0));
}

TEST_F(KeptTensors, OnlyTheShownPartIsCopied) {
  Tensor whole = at::randn({kMiddle});
  const Sum sum = add(whole.slice(0, 1000, 1000 + 512));
  EXPECT_LE(engine_->bytes_held(), Bytes(512 * 4 + 64));
  train([&] { whole.zero_(); });
  EXPECT_TRUE(is_repeated(sum));
}

TEST_F(KeptTensors, MemoryOfOthersIsCopiedOrRefused) {
  std::vector<float> own(kMiddle, 1.5F);
  const Sum small = add(at::from_blob(own.data() + 1, {512}));
  ASSERT_TRUE(small.record);
  own[1] = 7;
  EXPECT_TRUE(is_repeated(small));
  const Sum middle = add(at::from_blob(own.data(), {kMiddle}));
  EXPECT_FALSE(middle.record);
  EXPECT_EQ(middle.objection, "256 KiB of its arguments lie in memory that is not LibTorch's");
}

TEST_F(KeptTensors, LargeOnesThatAreNotPagedAreRefused) {
  PagedTable::instance().paged_from = 1 << 30;
  const Tensor part = at::randn({2 << 20});
  PagedTable::instance().paged_from = 1 << 20;
  large_ = at::randn({4 << 20});
  EXPECT_EQ(add(part).objection, "8.00 MiB of its arguments are not paged");
}

TEST_F(KeptTensors, WrittenOnesAreTheTrainersOwn) {
  Tensor part = at::zeros({kMiddle});
  Tensor mean = at::zeros({kMiddle});
  CheckedCalls calls(*engine_);
  {
    const Watched watched(calls);
    at::native_batch_norm(at::randn({20, kMiddle}), {}, {}, mean, part, true, 0.1, 1e-5);
  }
  // The watcher holds that replays leave them alone.
  EXPECT_EQ(calls.replayed.count("aten::native_batch_norm"), 1u);
}

/// A trainer that frees does not wait for a replay, which may wait for the trainer's pages.
TEST(KeptStorages, TakeABlockOverWhileAReplayReadsIt) {
  std::vector<void*> given_back;
  const auto kept =
      std::make_shared<KeptStorages>(at::kCPU, [&](void* memory) { given_back.push_back(memory); });
  std::vector<std::byte> block(256, std::byte{7});
  auto storage = kept->refer(block.data(), block.size());
  {
    const KeptStorage::Lease replay(*storage);
    EXPECT_TRUE(kept->before_free(block.data()));
    EXPECT_EQ(replay.data(), block.data());
  }
  EXPECT_THAT(given_back, ::testing::IsEmpty());
  storage.reset();
  EXPECT_THAT(given_back, ::testing::ElementsAre(block.data()));
}

}  // namespace
}  // namespace spillway::recompute
