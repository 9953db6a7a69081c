#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway::runtime {

/// How a rank of a split program fared, as it tells the first one at the end: a message of bytes,
/// between processes of the same Spillway.
struct RankFigures {
  static constexpr std::uint32_t kNobody = static_cast<std::uint32_t>(-1);

  std::uint32_t threads = 0;  ///< That its operators compute with.
  std::uint64_t budget_bytes = 0;
  std::uint64_t parameter_bytes = 0;  ///< Of parameters that it keeps.
  std::uint64_t peak_bytes = 0;       ///< Of tensors in memory.
  // Of its GPU, where it uses one.
  std::uint64_t gpu_budget_bytes = 0;  ///< 0: its memory is LibTorch's.
  std::uint64_t gpu_peak_bytes = 0;    ///< Of tensors in its memory.
  std::uint64_t gpu_spilled_bytes = 0;
  std::uint64_t gpu_sent_bytes = 0;    ///< Of tensors that have left straight for another GPU.
  std::uint64_t gpu_staged_bytes = 0;  ///< Of those that have left or come by way of the host.

  std::uint64_t spilled_bytes = 0;
  std::uint64_t micro_batches = 0;
  std::uint64_t steps = 0;

  // From its first task to its last. What computes nothing is idle for one of three reasons, apart
  // from gaps between tasks that were there.
  double seconds = 0.0;
  double busy_seconds = 0.0;
  double idle_for_ranks_seconds = 0.0;    ///< What was next needed a message.
  double idle_for_reads_seconds = 0.0;    ///< The program had waited for bytes before it went on.
  double idle_for_program_seconds = 0.0;  ///< The program had not come so far.

  std::uint32_t most_awaited = kNobody;  ///< The rank whose messages ended most of that idle time.
  double idle_for_most_awaited_seconds = 0.0;

  std::uint64_t reads = 0;       ///< Times that the program waited for the bytes of a tensor.
  double reads_seconds = 0.0;    ///< How long it did.
  std::uint64_t most_reads = 0;  ///< Part of `reads`: by the operator that waited longest.
  std::array<char, 64> most_read_by{};  ///< Its name, up to a zero.
};

/// Layers that have moved between ranks while a split program trained.
struct LayerMoves {
  std::uint64_t times = 0;
  std::uint64_t parameters = 0;  ///< That have moved,
  std::uint64_t bytes = 0;       ///< with what is kept beside them.
  // Of the slowest stage for a micro-batch.
  double seconds_before = 0.0;          ///< Measured before the first move.
  double seconds_forecast = 0.0;        ///< Before the latest move: what it was to be behind it.
  std::optional<double> seconds_after;  ///< Measured behind the latest move; none: not yet.
};

/// How all ranks of a split program fared, as the first one knows.
struct RanksReport {
  struct Row {
    std::string host;
    std::vector<std::uint32_t> stages;  ///< That it computes for any micro-batch.
    RankFigures figures;
  };
  std::string schedule;
  std::uint32_t replicas = 1;
  std::uint32_t shards = 1;
  std::vector<Row> rows;  ///< By rank.
  LayerMoves moves;
};

/// The summary's lines about ranks, without line ends: one about the job, the titles of a table,
/// a row for each rank, and one about layers that have moved.
std::vector<std::string> ranks_table(const RanksReport& report);

/// What would make the ranks wait less, a sentence each, the most important one first. Empty where
/// they hardly wait.
std::vector<std::string> ranks_advice(const RanksReport& report);

}  // namespace spillway::runtime
