#include "spillway/base/transfer_rate.h"

#include "spillway/base/error.h"

namespace spillway {

std::string rate_problem(std::string_view what, double bytes_per_second) {
  if (is_transfer_rate(bytes_per_second)) return {};
  return message("{} is {} bytes/s, not from {} to {} GB/s", what, bytes_per_second,
                 kLeastTransferRate / 1e9, kMostTransferRate / 1e9);
}

}  // namespace spillway
