#pragma once

#include <vector>

#include "library.h"
#include "spillway/device/device.h"
#include "spillway/transport/nccl/nccl_transport.h"

namespace spillway::transport::nccl {

/// All ranks tell the first one what they have, and get the name of their communicator. Throws as
/// make_nccl_transport, on all of them, with the same sentence.
UniqueId agree_on_start(Transport& host, const device::Device& device, const Library& library,
                        const NcclOptions& options);

/// Gives all of `ranks`, of which this is one, what the first of them has; they have agreed on
/// nothing under that number before.
UniqueId share(Transport& host, const std::vector<Rank>& ranks, std::uint32_t number,
               const UniqueId& id, Duration limit);

}  // namespace spillway::transport::nccl
