#include "spillway/transport/survey/texts.h"

#include "waited.h"

namespace spillway::transport {
namespace {

using device::host_span_of_all;
using survey::kFirst;
using survey::Topic;

}  // namespace

std::vector<std::string> gather_texts(Transport& transport, const std::string& mine) {
  std::string text = mine;
  std::uint64_t size = text.size();
  if (transport.rank() != kFirst) {
    survey::send_now(transport, kFirst, Topic::kTextSize, device::host_span_of(size));
    survey::send_now(transport, kFirst, Topic::kText, host_span_of_all(text));
    return {};
  }
  std::vector<std::string> all{text};
  for (std::uint32_t rank = 1; rank < transport.ranks(); ++rank) {
    survey::receive_now(transport, Rank(rank), Topic::kTextSize, device::host_span_of(size));
    text.assign(size, '\0');
    survey::receive_now(transport, Rank(rank), Topic::kText, host_span_of_all(text));
    all.push_back(text);
  }
  return all;
}

std::uint64_t number_for_this_rank(Transport& transport,
                                   const std::vector<std::uint64_t>& numbers) {
  std::uint64_t mine = 0;
  if (transport.rank() != kFirst) {
    survey::receive_now(transport, kFirst, Topic::kNumber, device::host_span_of(mine));
    return mine;
  }
  for (std::uint32_t rank = 1; rank < transport.ranks(); ++rank) {
    mine = numbers.at(rank);
    survey::send_now(transport, Rank(rank), Topic::kNumber, device::host_span_of(mine));
  }
  return numbers.at(0);
}

std::uint64_t number_of_first_rank(Transport& transport, std::uint64_t mine) {
  return number_for_this_rank(transport, std::vector(transport.ranks(), mine));
}

}  // namespace spillway::transport
