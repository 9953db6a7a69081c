#include "transfer_channels.h"

#include <algorithm>

namespace spillway::planner {

namespace {

constexpr std::size_t kWrite = 0;
constexpr std::size_t kRead = 1;
constexpr std::size_t kFar = 2;  // Added to either.

bool is_busy(std::size_t busy, std::size_t channel) { return (busy >> channel & 1U) != 0; }

struct Rates {
  TransferRate link;
  TransferRate disk;
};

/// What both directions leave of either rate.
struct Shares {
  double link = 1.0;
  double disk = 1.0;
};

/// Shares of one direction.
void share_link(const Rates& rates, const Shares& left, bool has_near, double& near, double& far) {
  const TransferRate alone = std::min(rates.link, rates.disk);
  const TransferRate link = rates.link * left.link;
  const TransferRate disk = rates.disk * left.disk;
  // Both tiers share the link evenly while both want it; what the disk cannot take of its half goes
  // to the near tier.
  const TransferRate offered = has_near ? link / 2 : link;
  const bool is_disk_slower = disk <= offered;
  const TransferRate far_rate = std::min(disk, offered);
  // As shares of what each moves alone, since the event model knows a channel by that rate.
  near = (link - far_rate) / rates.link;
  // The quotient, without its rounding where it is plain.
  if (is_disk_slower)
    far = rates.disk <= rates.link ? left.disk : disk / alone;
  else
    far = rates.link <= rates.disk && !has_near ? left.link : far_rate / alone;
}

}  // namespace

TransferRates rates_behind(const TransferRates& link, const TransferRates& disk) {
  TransferRates rates;
  rates.duplex_share = 0.0;
  for (TransferRate TransferRates::*rate : {&TransferRates::write, &TransferRates::read}) {
    rates.*rate = std::min(link.*rate, disk.*rate);
    double near = 0.0;
    double far = 0.0;
    share_link({link.*rate, disk.*rate}, {link.duplex_share, disk.duplex_share}, false, near, far);
    rates.duplex_share = std::max(rates.duplex_share, far);
  }
  // A page passes one after the other, so what each costs beyond the bytes adds up.
  rates.write_fixed_seconds = link.write_fixed_seconds + disk.write_fixed_seconds;
  rates.read_fixed_seconds = link.read_fixed_seconds + disk.read_fixed_seconds;
  rates.interference_seconds_per_byte =
      link.interference_seconds_per_byte + disk.interference_seconds_per_byte;
  rates.checksum_seconds_per_byte = link.checksum_seconds_per_byte + disk.checksum_seconds_per_byte;
  return rates;
}

void set_rates(const SwapLimits& limits, Channels<1>& channels) {
  const auto page = static_cast<double>(limits.page_size.count());
  channels[kWrite].pages_per_second = limits.rates.write.bytes_per_second() / page;
  channels[kRead].pages_per_second = limits.rates.read.bytes_per_second() / page;
  channels[kWrite].fixed_pages =
      limits.rates.write_fixed_seconds * channels[kWrite].pages_per_second;
  channels[kRead].fixed_pages = limits.rates.read_fixed_seconds * channels[kRead].pages_per_second;
  channels[kRead].event.direction = Direction::kReadIn;
}

void set_rates(const SwapLimits& limits, Channels<2>& channels) {
  SwapLimits one = limits;
  for (const std::size_t tier : {std::size_t{0}, kFar}) {
    // A far channel moves as fast as link and disk let it together; what they share with others is
    // told by the shares.
    if (tier == kFar) one.rates = rates_behind(limits.rates, limits.far->rates);
    Channels<1> plain;
    set_rates(one, plain);
    for (const std::size_t direction : {kWrite, kRead}) {
      channels[tier + direction] = plain[direction];
      channels[tier + direction].event.tier = tier == kFar ? Tier::kFar : Tier::kNear;
    }
  }
}

// A table by the set of busy channels, because the event model asks at each event: with one store
// there are four sets, with two of them sixteen.
void set_shares(const SwapLimits& limits, ChannelShares<1>& shares) {
  for (auto& set : shares) set.fill(1.0);
  shares[3].fill(limits.rates.duplex_share);
}

void set_shares(const SwapLimits& limits, ChannelShares<2>& shares) {
  const TransferRates& link = limits.rates;
  const TransferRates& disk = limits.far->rates;
  for (std::size_t busy = 0; busy < shares.size(); ++busy) {
    const bool has_writes = is_busy(busy, kWrite) || is_busy(busy, kFar + kWrite);
    const bool has_reads = is_busy(busy, kRead) || is_busy(busy, kFar + kRead);
    // The link is shared by what moves in both directions of either tier, the disk only by its own.
    const bool is_far_duplex = is_busy(busy, kFar + kWrite) && is_busy(busy, kFar + kRead);
    const Shares left{has_writes && has_reads ? link.duplex_share : 1.0,
                      is_far_duplex ? disk.duplex_share : 1.0};
    const std::array<Rates, 2> rates{{{link.write, disk.write}, {link.read, disk.read}}};
    shares[busy].fill(left.link);
    for (const std::size_t direction : {kWrite, kRead}) {
      if (!is_busy(busy, kFar + direction)) continue;
      share_link(rates[direction], left, is_busy(busy, direction), shares[busy][direction],
                 shares[busy][kFar + direction]);
    }
  }
}

}  // namespace spillway::planner
