#pragma once

#include "spillway/base/transfer_rate.h"
#include "spillway/device/device.h"

namespace spillway::device {

/// How fast a device copies blocks of 2 MiB between its memory and slabs of host memory.
struct CopyRates {
  TransferRate out;   ///< To the host, alone.
  TransferRate in;    ///< From the host, alone.
  TransferRate both;  ///< Both at once, added up.
};

/// Measures it by events of two queues, in some milliseconds and at most 32 MiB of memory on either
/// side, each byte of which is touched before. Throws Error when that is refused or a copy fails.
CopyRates measure_copies(Device& device);

}  // namespace spillway::device
