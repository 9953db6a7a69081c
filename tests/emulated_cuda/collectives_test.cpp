// The emulated NCCL: ranks are threads with a device each, or processes.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "streams_and_memory.h"
#include "support/emulated_cuda/collectives/nccl_api.h"

namespace spillway::emulated {
namespace {

constexpr std::size_t kCount = 100'000;  // Of float: more than what is under way at once.

// A rank with its device, its stream and its communicator.
struct Rank {
  int rank;
  int ranks;
  ncclComm_t comm;
  cudaStream_t stream;
};

void run_rank(int rank, int ranks, const ncclUniqueId& id,
              const std::function<void(const Rank&)>& program) {
  ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
  const FreeStream stream;
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRank(&comm, ranks, id, rank), ncclSuccess) << ncclGetLastError(nullptr);
  program({rank, ranks, comm, stream});
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

void run_ranks(int ranks, const std::function<void(const Rank&)>& program) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { run_rank(rank, ranks, id, program); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Values of a device, whose copies are in the stream.
class Values {
 public:
  Values(const Rank& rank, std::size_t count)
      : rank_(rank), bytes_(count * sizeof(float)), count_(count) {}

  void set(const std::function<float(std::size_t)>& value) {
    std::vector<float> host(count_);
    for (std::size_t i = 0; i < count_; ++i) host[i] = value(i);
    EXPECT_EQ(cudaMemcpyAsync(data(), host.data(), host.size() * sizeof(float),
                              cudaMemcpyHostToDevice, rank_.stream),
              cudaSuccess);
  }
  std::vector<float> get() const {
    std::vector<float> host(count_);
    EXPECT_EQ(cudaMemcpyAsync(host.data(), data(), host.size() * sizeof(float),
                              cudaMemcpyDeviceToHost, rank_.stream),
              cudaSuccess);
    return host;
  }
  float* data() const { return reinterpret_cast<float*>(bytes_.data()); }

 private:
  const Rank& rank_;
  DeviceBytes bytes_;
  std::size_t count_;
};

float value_of(int rank, std::size_t i) {
  return static_cast<float>(rank + 1) * 0.1F + static_cast<float>(i % 7);
}

class EmulatedNccl : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
class EmulatedNcclOfRanks : public testing::TestWithParam<int> {};

TEST_P(EmulatedNcclOfRanks, AllReduceSumsInTheOrderOfRanks) {
  run_ranks(GetParam(), [](const Rank& rank) {
    Values values(rank, kCount);
    values.set([&](std::size_t i) { return value_of(rank.rank, i); });
    EXPECT_EQ(ncclAllReduce(values.data(), values.data(), kCount, ncclFloat32, ncclSum, rank.comm,
                            rank.stream),
              ncclSuccess);
    const std::vector<float> result = values.get();
    for (std::size_t i : {std::size_t{0}, kCount / 2 + 1, kCount - 1}) {
      float sum = value_of(0, i);
      for (int other = 1; other < rank.ranks; ++other) sum += value_of(other, i);
      EXPECT_EQ(result[i], sum);
    }
  });
}

TEST_P(EmulatedNcclOfRanks, ReduceScatterGivesEachItsPart) {
  run_ranks(GetParam(), [](const Rank& rank) {
    const auto ranks = static_cast<std::size_t>(rank.ranks);
    Values values(rank, kCount * ranks);
    Values part(rank, kCount);
    values.set([&](std::size_t i) { return static_cast<float>(i / kCount); });
    EXPECT_EQ(ncclReduceScatter(values.data(), part.data(), kCount, ncclFloat32, ncclSum, rank.comm,
                                rank.stream),
              ncclSuccess);
    EXPECT_EQ(part.get(), std::vector<float>(kCount, static_cast<float>(rank.rank * rank.ranks)));
  });
}

TEST_P(EmulatedNcclOfRanks, AllGatherPutsRanksInOrder) {
  run_ranks(GetParam(), [](const Rank& rank) {
    Values mine(rank, kCount);
    Values all(rank, kCount * static_cast<std::size_t>(rank.ranks));
    mine.set([&](std::size_t) { return static_cast<float>(rank.rank); });
    EXPECT_EQ(ncclAllGather(mine.data(), all.data(), kCount, ncclFloat32, rank.comm, rank.stream),
              ncclSuccess);
    const std::vector<float> result = all.get();
    for (int other = 0; other < rank.ranks; ++other) {
      EXPECT_EQ(result[kCount * static_cast<std::size_t>(other) + kCount / 2],
                static_cast<float>(other));
    }
  });
}

TEST_P(EmulatedNcclOfRanks, BroadcastAndReduceHaveARoot) {
  run_ranks(GetParam(), [](const Rank& rank) {
    const int root = rank.ranks - 1;
    Values values(rank, kCount);
    Values result(rank, kCount);
    values.set([&](std::size_t) { return static_cast<float>(rank.rank); });
    result.set([](std::size_t) { return -1.0F; });
    EXPECT_EQ(ncclReduce(values.data(), result.data(), kCount, ncclFloat32, ncclMax, root,
                         rank.comm, rank.stream),
              ncclSuccess);
    EXPECT_EQ(result.get()[5], rank.rank == root ? static_cast<float>(root) : -1.0F);
    EXPECT_EQ(ncclBcast(values.data(), kCount, ncclFloat32, root, rank.comm, rank.stream),
              ncclSuccess);
    EXPECT_EQ(values.get(), std::vector<float>(kCount, static_cast<float>(root)));
  });
}

// All send before they receive: apart from a group none would get anywhere.
TEST_P(EmulatedNcclOfRanks, MovesOfAGroupMakeProgressTogether) {
  run_ranks(GetParam(), [](const Rank& rank) {
    const int next = (rank.rank + 1) % rank.ranks;
    const int last = (rank.rank + rank.ranks - 1) % rank.ranks;
    Values mine(rank, kCount);
    Values theirs(rank, kCount);
    mine.set([&](std::size_t) { return static_cast<float>(rank.rank); });
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(mine.data(), kCount, ncclFloat32, next, rank.comm, rank.stream),
              ncclSuccess);
    EXPECT_EQ(ncclRecv(theirs.data(), kCount, ncclFloat32, last, rank.comm, rank.stream),
              ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_EQ(theirs.get(), std::vector<float>(kCount, static_cast<float>(last)));
  });
}

TEST_P(EmulatedNcclOfRanks, SplitsByColorInTheOrderOfKeys) {
  run_ranks(GetParam(), [](const Rank& rank) {
    for (int round = 0; round < 3; ++round) {
      ncclComm_t part = nullptr;
      const int color = rank.rank % 2 == 0 ? 0 : kNcclNoColor;
      EXPECT_EQ(ncclCommSplit(rank.comm, color, -rank.rank, &part, nullptr), ncclSuccess);
      if (color == kNcclNoColor) {
        EXPECT_EQ(part, nullptr);
        continue;
      }
      int ranks = 0;
      int mine = -1;
      EXPECT_EQ(ncclCommCount(part, &ranks), ncclSuccess);
      EXPECT_EQ(ncclCommUserRank(part, &mine), ncclSuccess);
      EXPECT_EQ(ranks, (rank.ranks + 1) / 2);
      EXPECT_EQ(mine, ranks - 1 - rank.rank / 2);
      Values values(rank, 1);
      values.set([](std::size_t) { return 1.0F; });
      EXPECT_EQ(
          ncclAllReduce(values.data(), values.data(), 1, ncclFloat32, ncclSum, part, rank.stream),
          ncclSuccess);
      EXPECT_EQ(values.get().front(), static_cast<float>(ranks));
      EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(EmulatedCuda, EmulatedNcclOfRanks, testing::Values(1, 2, 4));

TEST_F(EmulatedNccl, OneThreadMakesAllItsCommunicatorsInAGroup) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comms[2] = {};
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
    EXPECT_EQ(ncclCommInitRank(&comms[rank], 2, id, rank), ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  int device = -1;
  EXPECT_EQ(ncclCommCuDevice(comms[1], &device), ncclSuccess);
  EXPECT_EQ(device, 1);
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

template <class Value>
Value sum_of_two(Value first, Value second, ncclDataType_t type, ncclRedOp_t how) {
  Value result{};
  run_ranks(2, [&](const Rank& rank) {
    const DeviceBytes device(sizeof(Value));
    const Value& mine = rank.rank == 0 ? first : second;
    EXPECT_EQ(
        cudaMemcpyAsync(device.data(), &mine, sizeof mine, cudaMemcpyHostToDevice, rank.stream),
        cudaSuccess);
    EXPECT_EQ(ncclAllReduce(device.data(), device.data(), 1, type, how, rank.comm, rank.stream),
              ncclSuccess);
    Value sum{};
    EXPECT_EQ(cudaMemcpyAsync(&sum, device.data(), sizeof sum, cudaMemcpyDeviceToHost, rank.stream),
              cudaSuccess);
    if (rank.rank == 0) result = sum;
  });
  return result;
}

TEST_F(EmulatedNccl, ReducesEachType) {
  EXPECT_EQ(sum_of_two<std::int64_t>(-5, 3, ncclInt64, ncclMin), -5);
  EXPECT_EQ(sum_of_two<std::uint8_t>(200, 55, ncclUint8, ncclSum), 255);
  EXPECT_EQ(sum_of_two<double>(1, 2, ncclFloat64, ncclAvg), 1.5);
  // bf16: 1 + 2^-8 is halfway and goes to even; 3 * 2 = 6.
  EXPECT_EQ(sum_of_two<std::uint16_t>(0x3F80, 0x3B80, ncclBfloat16, ncclSum), 0x3F80);
  EXPECT_EQ(sum_of_two<std::uint16_t>(0x4040, 0x4000, ncclBfloat16, ncclProd), 0x40C0);
  // fp16: 1 + 2 = 3, two subnormals, 65504 + 65504 = infinity, 1 + 2^-11 goes to even.
  EXPECT_EQ(sum_of_two<std::uint16_t>(0x3C00, 0x4000, ncclFloat16, ncclSum), 0x4200);
  EXPECT_EQ(sum_of_two<std::uint16_t>(0x0001, 0x0002, ncclFloat16, ncclSum), 0x0003);
  EXPECT_EQ(sum_of_two<std::uint16_t>(0x7BFF, 0x7BFF, ncclFloat16, ncclSum), 0x7C00);
  EXPECT_EQ(sum_of_two<std::uint16_t>(0x3C00, 0x1000, ncclFloat16, ncclSum), 0x3C00);
}

TEST_F(EmulatedNccl, AnAbortEndsTheWaitOfTheOthers) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::thread other([&] {
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, 2, id, 1), ncclSuccess);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  });
  run_rank(0, 2, id, [](const Rank& rank) {
    Values values(rank, kCount);
    EXPECT_EQ(ncclRecv(values.data(), kCount, ncclFloat32, 1, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
    ncclResult_t error = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(rank.comm, &error), ncclSuccess);
    EXPECT_EQ(error, ncclRemoteError);
  });
  other.join();
}

TEST_F(EmulatedNccl, DoesNotBlockWhereThatIsAskedForAndRefusesCallsThatDoNotAwaitOneAnother) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EmulatedNcclConfig config{sizeof config, kNcclConfigMagic, 21400, 0};
  const auto state_of = [](ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    return state;
  };
  ncclComm_t comms[2] = {};
  EXPECT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
  EXPECT_EQ(state_of(comms[0]), ncclInProgress);
  EXPECT_EQ(state_of(comms[0]), ncclInProgress);
  EXPECT_EQ(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config), ncclInProgress);
  for (ncclComm_t comm : comms) {
    while (state_of(comm) == ncclInProgress) {
    }
    EXPECT_EQ(state_of(comm), ncclSuccess);
  }
  const FreeStream stream;
  const DeviceBytes bytes(8);
  const auto receive = [&] { return ncclRecv(bytes.data(), 8, ncclUint8, 1, comms[0], stream); };
  EXPECT_EQ(receive(), ncclInProgress);
  EXPECT_EQ(receive(), ncclInvalidUsage);
  EXPECT_STREQ(ncclGetLastError(comms[0]), "ncclRecv: another call is in progress");
  for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  config.magic = 0;
  EXPECT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInvalidArgument);
}

TEST_F(EmulatedNccl, AccessesAreChecked) {
  const auto program = [] {
    run_ranks(1, [](const Rank& rank) {
      const FreeStream other;
      Values values(rank, kCount);
      values.set([](std::size_t) { return 1.0F; });
      EXPECT_EQ(ncclAllReduce(values.data(), values.data(), kCount, ncclFloat32, ncclSum, rank.comm,
                              rank.stream),
                ncclSuccess);
      EXPECT_EQ(cudaMemsetAsync(values.data(), 0, kCount * sizeof(float), other), cudaSuccess);
    });
  };
  EXPECT_DEATH(program(),
               "not ordered: 'fill' on stream 1 of device 0 writes .* 'ncclAllReduce' on stream 0");
}

TEST_F(EmulatedNccl, RanksMayBeProcesses) {
  const auto program = [] {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    const pid_t child = fork();  // Before CUDA: streams have threads.
    run_rank(child == 0 ? 1 : 0, 2, id, [](const Rank& rank) {
      Values values(rank, kCount);
      values.set([&](std::size_t) { return static_cast<float>(rank.rank + 1); });
      EXPECT_EQ(ncclAllReduce(values.data(), values.data(), kCount, ncclFloat32, ncclSum, rank.comm,
                              rank.stream),
                ncclSuccess);
      EXPECT_EQ(values.get(), std::vector<float>(kCount, 3));
    });
    int status = 0;
    if (child != 0) {
      EXPECT_EQ(waitpid(child, &status, 0), child);
    }
    _exit(testing::Test::HasFailure() || status != 0 ? 1 : 0);
  };
  EXPECT_EXIT(program(), testing::ExitedWithCode(0), "");
}

TEST_F(EmulatedNccl, WhatIsNotEmulatedIsRefused) {
  run_ranks(1, [](const Rank& rank) {
    Values values(rank, 1);
    EXPECT_EQ(ncclAllReduce(values.data(), values.data(), 1, static_cast<ncclDataType_t>(10),
                            ncclSum, rank.comm, rank.stream),
              ncclInvalidArgument);
    EXPECT_STREQ(ncclGetLastError(rank.comm), "ncclAllReduce: type 10 is not emulated");
    EXPECT_EQ(ncclSend(values.data(), 1, ncclFloat32, 1, rank.comm, rank.stream),
              ncclInvalidArgument);
    EXPECT_STREQ(ncclGetLastError(rank.comm), "ncclSend: rank 1 of 1");
  });
}

}  // namespace
}  // namespace spillway::emulated
