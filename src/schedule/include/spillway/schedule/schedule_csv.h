#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// The CSV form of PyTorch's torch.distributed.pipelining: a line per rank, a cell per action,
/// written STAGE ACTION MICRO-BATCH without spaces, "2F0,3SEND_F1,1B3". Actions are F, B (full
/// backward), I and W (its halves), SEND_F, RECV_F, SEND_B, RECV_B, REDUCE_GRAD; and
/// "(0F1;3B0)OVERLAP_F_B", a forward and a backward that run as one. Empty cells are idle; a rank
/// without any action is the line ",".
///
/// What that form cannot say is written so that PyTorch refuses it instead of misreading it:
/// - "r1:2F0" is of replica 1; without that prefix, of replica 0;
/// - STEP, SWAP_OUT, SWAP_IN, RECOMPUTE, SEND_WEIGHTS, RECV_WEIGHTS, SEND_GRADIENTS,
///   RECV_GRADIENTS, SWAP_OUT_WEIGHTS, SWAP_IN_WEIGHTS are further actions;
/// - a first line "#spillway-schedule 1,weights=previous,data_parallel=4,untrained_stages=1" says
///   what is not as usual: weights=newest, data_parallel=1, untrained_stages=0.
///
/// The rank of a stage is the one with its forwards, so placements are not written.
std::string to_csv(const Schedule& schedule);

/// The action lists that PyTorch is to run: of one pipeline, without the updates at their ends and
/// the sums over pipelines, which it does itself. Nothing for action lists that need more than its
/// form can say.
std::optional<Schedule> for_pytorch(Schedule schedule);

/// Reads what `to_csv` or PyTorch has written, the latter in both of its forms, with messages
/// ("compute_comms") and without. Its UNSHARD and RESHARD are read over: a schedule says nothing of
/// parameters that are sharded over a data-parallel replica. Throws ConfigError "NAME, line 2,
/// column 17: …" for text that is no schedule: the first place that is wrong. What is read need not
/// be a good schedule; `first_fault` tells.
Schedule read_schedule_csv(std::string_view text, std::string_view name);

}  // namespace spillway::schedule
