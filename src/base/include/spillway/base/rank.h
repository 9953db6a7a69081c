#pragma once

#include "spillway/base/strong_id.h"

namespace spillway {

/// A process of the job, counted from 0.
using Rank = StrongId<struct RankTag>;

}  // namespace spillway
