#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/transport/transport.h"

namespace spillway::transport {

/// On the first rank: the text of each rank. Others send theirs, and get none. Throws
/// TransportError for a message that is lost.
std::vector<std::string> gather_texts(Transport& transport, const std::string& mine);

/// What the first rank has for this one: one number for each rank, which other ranks leave empty.
/// Throws as `gather_texts`.
std::uint64_t number_for_this_rank(Transport& transport, const std::vector<std::uint64_t>& numbers);

/// What the first rank has, on all ranks. Throws as `gather_texts`.
std::uint64_t number_of_first_rank(Transport& transport, std::uint64_t mine);

}  // namespace spillway::transport
