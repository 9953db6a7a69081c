#pragma once

#include <array>

#include "spillway/base/named_values.h"
#include "spillway/schedule/schedule.h"

namespace spillway::schedule {

/// As the CSV form writes them. The first nine are those of PyTorch's torch.distributed.pipelining
/// (schedules.py), but for its UNSHARD and RESHARD; the others are ours. Its reader looks at the
/// start of a name only, so none of ours begins with one of its own: it refuses them.
inline constexpr std::array<Named<ActionKind>, 19> kActionNames{{
    {"F", ActionKind::kForward},
    {"B", ActionKind::kBackward},
    {"I", ActionKind::kInputGradient},
    {"W", ActionKind::kWeightGradient},
    {"SEND_F", ActionKind::kSendForward},
    {"RECV_F", ActionKind::kReceiveForward},
    {"SEND_B", ActionKind::kSendBackward},
    {"RECV_B", ActionKind::kReceiveBackward},
    {"REDUCE_GRAD", ActionKind::kReduce},
    {"STEP", ActionKind::kStep},
    {"SWAP_OUT", ActionKind::kSwapOut},
    {"SWAP_IN", ActionKind::kSwapIn},
    {"RECOMPUTE", ActionKind::kRecompute},
    {"SEND_WEIGHTS", ActionKind::kSendWeights},
    {"RECV_WEIGHTS", ActionKind::kReceiveWeights},
    {"SEND_GRADIENTS", ActionKind::kSendGradients},
    {"RECV_GRADIENTS", ActionKind::kReceiveGradients},
    {"SWAP_OUT_WEIGHTS", ActionKind::kSwapOutWeights},
    {"SWAP_IN_WEIGHTS", ActionKind::kSwapInWeights},
}};

}  // namespace spillway::schedule
