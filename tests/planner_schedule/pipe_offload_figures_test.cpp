// PipeOffload (Wan et al., ICML 2025, arXiv 2503.01328v2): its figure 15 for 10.5 B parameters on 8
// A100 of 80 GB.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "spillway/planner/schedule/schedule_passes.h"
#include "support/generated_schedule.h"

namespace spillway::planner_schedule {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
constexpr double kWidth = 5120.0;
constexpr std::uint32_t kGpus = 8;
constexpr std::uint32_t kMicroBatches = 64;  // Of one sequence.
/// 220 TFLOP/s and 15 GB/s are what the paper reckons with; the latter for both ways together.
constexpr double kFlops = 220e12;
constexpr double kWayToHost = 15e9 / 2;
/// Per layer and token: 20 bytes times the width, of which 4 are keys and values; these are shared,
/// 8 for 40 heads.
constexpr double kBytesPerWidth = 20.0 - 4.0 * (1.0 - 8.0 / 40.0);

double layer_bytes(double sequence) { return kBytesPerWidth * sequence * kWidth; }

/// Between two stages, in half precision.
double message_bytes(double sequence) { return 2.0 * sequence * kWidth; }

/// One layer; its operations are those behind the paper's formula 1, attention's backward in the
/// input gradient.
StageCosts layer_costs(double sequence) {
  const double products = 24.0 * kWidth;
  const double tokens = sequence * kWidth / kFlops;
  StageCosts costs;
  costs.forward_seconds = (products + 4.0 * sequence) * tokens;
  costs.input_gradient_seconds = (products + 8.0 * sequence) * tokens;
  costs.weight_gradient_seconds = products * tokens;
  costs.stash = Bytes(static_cast<std::uint64_t>(layer_bytes(sequence)));
  return costs;
}

/// k: both ways of a stash over the time of its layer.
double link_share(double sequence) {
  const StageCosts layer = layer_costs(sequence);
  return layer_bytes(sequence) / kWayToHost /
         (layer.forward_seconds + layer.input_gradient_seconds + layer.weight_gradient_seconds);
}

struct Column {
  const char* name;
  const char* schedule;
  std::uint32_t stages_per_rank;
  std::uint32_t offloaded;  // Of them.
};
/// 38 layers; a layer per stage but under 1F1B, and one less at both ends.
constexpr Column kColumns[] = {{"1F1B-I", "interleaved", 5, 0}, {"GIS", "gis", 5, 0},
                               {"GIS-H", "gis-h", 5, 0},        {"PO-H", "pipeoffload", 5, 3},
                               {"PO-F", "pipeoffload", 5, 5},   {"1F1B", "1f1b", 1, 0}};

struct Measured {
  double gib = 0.0;
  double step_seconds = 0.0;
};

/// What the fullest GPU holds: its stashes; room to run the backward of one layer, as what it
/// recomputes and its gradients are reckoned to be as large as its stash; and a message that
/// has come ahead or is still leaving. The latter two are our reading: the paper names no such
/// figures. Stashes alone are whole layers, and where they are fewest, 4 for PO-F at 32768 tokens,
/// rounding does not explain the 14 that is printed: with one layer more it would be 13.1, with the
/// message it is 13.4.
Measured measured(const Column& column, double sequence) {
  const std::uint32_t stages = kGpus * column.stages_per_rank;
  const Schedule plain = generated(
      column.schedule,
      {.ranks = kGpus, .micro_batches = kMicroBatches, .stages_per_rank = column.stages_per_rank});
  const StageCosts layer = layer_costs(sequence);
  ScheduleCosts costs;
  costs.host.rate = TransferRate(kWayToHost);
  const std::uint32_t layers = 40 / stages;
  for (std::uint32_t stage = 0; stage < stages; ++stage) {
    StageCosts& each = costs.stages.emplace_back(layer);
    each.forward_seconds *= layers;  // The vocabulary takes as long as the layer that it replaces.
    each.input_gradient_seconds *= layers;
    each.weight_gradient_seconds *= layers;
    const bool is_end = stage == 0 || stage + 1 == stages;
    each.stash = Bytes(layer.stash.count() * (layers - (is_end ? 1U : 0U)));
  }
  const ScheduleTiming timing =
      time_schedule(with_offloaded_stages(plain, costs, column.offloaded), costs);
  Measured result;
  result.step_seconds = timing.step_seconds;
  for (const RankTiming& rank : timing.ranks)
    result.gib = std::max(result.gib, static_cast<double>(rank.peak_memory.count()) / kGib);
  result.gib += (static_cast<double>(layer.stash.count()) + message_bytes(sequence)) / kGib;
  return result;
}

constexpr double kOutOfMemory = -1.0;
constexpr double kSkipped = -2.0;  // PO-F where k is above 1.

struct Row {
  double sequence;
  double gigabytes[6];  // By column, in whole GB.
  double utilization[6];
};
constexpr Row kRows[] = {
    {4096, {15, 13, 8, 3, kSkipped, 12}, {65, 65, 63, 59, kSkipped, 57}},
    {8192, {30, 27, 16, 6, kSkipped, 24}, {68, 68, 65, 61, kSkipped, 59}},
    {16384, {kOutOfMemory, kOutOfMemory, 32, 12, 9, 48}, {-1, -1, 68, 63, 59, 62}},
    {32768,
     {kOutOfMemory, kOutOfMemory, kOutOfMemory, 24, 14, kOutOfMemory},
     {-1, -1, -1, 65, 64, -1}}};

/// How far it is from what is printed as this whole number, as a share of it.
double miss(double figure, double printed) {
  return std::max(0.0, std::abs(figure - printed) - 0.5) / printed;
}

TEST(PipeOffloadFigures, MemoryOfTenBillionParametersIsWithinFivePercent) {
  for (const Row& row : kRows)
    for (std::size_t i = 0; i < std::size(kColumns); ++i)
      if (row.gigabytes[i] > 0.0) {
        const double gib = measured(kColumns[i], row.sequence).gib;
        EXPECT_NEAR(gib, row.gigabytes[i], 0.05 * row.gigabytes[i])
            << kColumns[i].name << " " << row.sequence << ": " << gib;
      }
}

// Weights, gradients and Adam's states in mixed precision take 18 bytes per parameter. Context,
// messages and fragments take some GiB more: with anything from 6 to 10 the same runs fail.
TEST(PipeOffloadFigures, RunsOutOfMemoryWhereThePaperDid) {
  constexpr double kStates = 18.0 * 10.5e9 / kGpus / kGib;
  for (const double reserve : {6.0, 10.0})
    for (const Row& row : kRows)
      for (std::size_t i = 0; i < std::size(kColumns); ++i) {
        if (row.gigabytes[i] == kSkipped) continue;
        const double needed = kStates + reserve + measured(kColumns[i], row.sequence).gib;
        EXPECT_EQ(needed > 80.0, row.gigabytes[i] == kOutOfMemory)
            << kColumns[i].name << " " << row.sequence << ": " << needed << " GiB";
      }
}

TEST(PipeOffloadFigures, OffloadsAllStagesWhereTheLinkIsFastEnough) {
  for (const Row& row : kRows)
    EXPECT_EQ(link_share(row.sequence) > 1.0, row.gigabytes[4] == kSkipped) << row.sequence;
}

// Utilization against that of the fastest of a row. The paper itself excepts PO-F at 16384 tokens,
// where its link had nothing to spare (k = 1.0). The rest of the difference has one sign: theirs is
// never above ours but for rounding. Theirs is measured: with messages, which take no time here,
// with kernels that copies beside them slow down (PO-H at 8192 tokens: 61 for 65.0), and with what
// stages do at their begin, which 1F1B (59 for 62.6) hides less of than interleaved action lists
// do. The paper gives no times of these.
TEST(PipeOffloadFigures, UtilizationIsWithinSixPercentOfTheFastest) {
  for (const Row& row : kRows) {
    const double* const fastest = std::max_element(row.utilization, std::end(row.utilization));
    const Column& reference = kColumns[fastest - row.utilization];
    const double step = measured(reference, row.sequence).step_seconds;
    for (std::size_t i = 0; i < std::size(kColumns); ++i) {
      if (row.utilization[i] <= 0.0 || (i == 4 && row.sequence == 16384)) continue;
      const double predicted = *fastest * step / measured(kColumns[i], row.sequence).step_seconds;
      EXPECT_LE(miss(predicted, row.utilization[i]), 0.06)
          << kColumns[i].name << " " << row.sequence << ": " << predicted;
      EXPECT_GE(predicted, row.utilization[i] - 0.5) << kColumns[i].name << " " << row.sequence;
    }
  }
}

}  // namespace
}  // namespace spillway::planner_schedule
