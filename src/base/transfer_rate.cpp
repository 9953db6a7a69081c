#include "spillway/base/transfer_rate.h"

#include <array>
#include <cstdio>

#include "spillway/base/error.h"

namespace spillway {

std::string to_string(TransferRate rate) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f GB/s", rate.bytes_per_second() / 1e9);
  return text.data();
}

std::ostream& operator<<(std::ostream& out, TransferRate rate) { return out << to_string(rate); }

std::string rate_problem(std::string_view what, TransferRate rate) {
  if (rate >= kLeastTransferRate && rate <= kMostTransferRate) return {};
  return message("{} is {} bytes/s, not from {} to {} GB/s", what, rate.bytes_per_second(),
                 kLeastTransferRate.bytes_per_second() / 1e9,
                 kMostTransferRate.bytes_per_second() / 1e9);
}

}  // namespace spillway
