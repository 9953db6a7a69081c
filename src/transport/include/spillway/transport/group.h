#pragma once

#include <memory>
#include <vector>

#include "spillway/transport/transport.h"

namespace spillway::transport {

/// Some ranks of `parent`, which outlives it, as a transport of their own: they are counted from 0
/// in the order of `members`, one of which is this rank. It has no messages of its own: tags are
/// the parent's, so two groups with the same two ranks must not use one tag between these at once;
/// notifiers tell of all messages of the parent's, `abort` ends its job, and errors of messages
/// name its ranks. Making it sends nothing. Throws Error for members that do not exist, are there
/// twice, or do without this rank.
std::unique_ptr<Transport> make_group(Transport& parent, std::vector<Rank> members);

}  // namespace spillway::transport
