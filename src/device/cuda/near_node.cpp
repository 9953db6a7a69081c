#include "near_node.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

namespace spillway::device {
namespace {

constexpr std::size_t kMostNodes = 1024;
constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);

bool has_policy() {
  int mode = MPOL_DEFAULT;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, 0UL, 0UL) == 0 && mode != MPOL_DEFAULT;
}

}  // namespace

std::optional<int> node_near(const std::string& bus_address) {
  const std::string device = "/sys/bus/pci/devices/" + bus_address;
  std::ifstream file(device + "/numa_node");
  int node = -1;
  if (!(file >> node) || node < 0) return std::nullopt;
  std::ifstream online(device + "/subsystem/../../devices/system/node/online");  // "0-1,4"
  std::string nodes;
  if (online >> nodes && nodes.find_first_of("-,") == std::string::npos) return std::nullopt;
  return node;
}

std::string prefer_node(DeviceSpan host, int node) {
  const auto at = static_cast<std::size_t>(node);
  if (node < 0 || at >= kMostNodes || has_policy()) return {};
  std::array<unsigned long, kMostNodes / kWordBits> mask{};
  mask[at / kWordBits] = 1UL << (at % kWordBits);
  // Whole pages only: those at the ends may belong to others, too.
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(host.data);
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t end = (begin + host.size.count()) / page * page;
  if (first >= end) return {};
  // The kernel takes one off the number of bits.
  if (::syscall(SYS_mbind, first, end - first, MPOL_PREFERRED, mask.data(), kMostNodes + 1,
                MPOL_MF_MOVE) == 0)
    return {};
  const int error = errno;
  const char* const mend =
      error == EPERM || error == ENOSYS ? " (containers may with --cap-add SYS_NICE)" : "";
  return std::string(std::strerror(error)) + mend;
}

}  // namespace spillway::device
