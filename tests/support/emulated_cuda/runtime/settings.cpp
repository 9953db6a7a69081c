#include "settings.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "failure.h"

namespace spillway::emulated {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& value, const char* wanted) {
  die(std::string(name) + "=" + value + " cannot be read; it takes " + wanted);
}

// A whole number, with or without KiB, MiB or GiB.
std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  std::uint64_t value = std::strtoull(text, &end, 0);
  const std::string_view unit = end;
  constexpr std::string_view kUnits[] = {"", "KiB", "MiB", "GiB"};
  for (std::size_t i = 0; i < std::size(kUnits); ++i) {
    if (end != text && *text != '-' && unit == kUnits[i]) return value << (10 * i);
  }
  refuse(name, text, "a whole number, or one with KiB, MiB or GiB");
}

bool flag(const char* name, bool otherwise) {
  const std::uint64_t value = number(name, otherwise ? 1 : 0);
  if (value > 1) refuse(name, std::to_string(value), "0 or 1");
  return value == 1;
}

// 8.0 or 80.
int capability() {
  const char* text = std::getenv("EMU_CUDA_CC");
  if (text == nullptr) return 80;
  std::string digits = text;
  if (const auto dot = digits.find('.'); dot != std::string::npos) digits.erase(dot, 1);
  if (digits.size() < 2 || digits.size() > 3 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    refuse("EMU_CUDA_CC", text, "a compute capability such as 8.0");
  }
  return std::stoi(digits);
}

int driver() {
  const char* text = std::getenv("EMU_CUDA_DRIVER");
  if (text == nullptr) return CUDART_VERSION;
  int major = 0;
  int minor = 0;
  char rest = 0;
  const bool is_release = std::sscanf(text, "%d.%d%c", &major, &minor, &rest) == 2 && minor < 100;
  if (!is_release && std::string_view(text) != "0")
    refuse("EMU_CUDA_DRIVER", text, "a release such as 13.0, or 0 for no driver");
  return major * 1000 + minor * 10;
}

// The devices that the process sees. As CUDA has it, the first one that is not there ends the list.
std::vector<int> devices() {
  const auto count = static_cast<int>(number("EMU_CUDA_DEVICES", 1));
  std::vector<int> all;
  if (driver() < CUDART_VERSION) return all;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) {
    for (int i = 0; i < count; ++i) all.push_back(i);
    return all;
  }
  for (const char* at = visible; *at != '\0';) {
    char* end = nullptr;
    const long device = std::strtol(at, &end, 10);
    if (end == at || device < 0 || device >= count) break;
    all.push_back(static_cast<int>(device));
    if (*end != ',') break;
    at = end + 1;
  }
  return all;
}

std::size_t grain() {
  const std::size_t value = number("EMU_CUDA_GRAIN", 2U << 20);
  if (value < 4096 || (value & (value - 1)) != 0) {
    refuse("EMU_CUDA_GRAIN", std::to_string(value), "a power of two from 4KiB on");
  }
  return value;
}

std::string text(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

Settings read() {
  return {.devices = devices(),
          .memory = number("EMU_CUDA_MEMORY", std::uint64_t{8} << 30),
          .pinned_memory = number("EMU_CUDA_PINNED", std::numeric_limits<std::size_t>::max()),
          .grain = grain(),
          .virtual_memory = flag("EMU_CUDA_VIRTUAL", true),
          .capability = capability(),
          .driver = driver(),
          .name = text("EMU_CUDA_NAME", ""),
          .poison = flag("EMU_CUDA_POISON", true),
          .bus_address = text("EMU_CUDA_BUS_ADDRESS", ""),
          .trace = flag("EMU_CUDA_TRACE", false),
          .check = flag("EMU_CUDA_CHECK", true),
          .nccl_fixed = flag("EMU_NCCL_FIXED", false),
          .delay_us = number("EMU_CUDA_DELAY_US", 0),
          .delay_pct = number("EMU_CUDA_DELAY_PCT", 100),
          .seed = number("EMU_CUDA_SEED", 1)};
}

}  // namespace

const Settings& settings() {
  static const auto* all = new Settings(read());  // Leaked: workers read it to the end.
  return *all;
}

}  // namespace spillway::emulated
