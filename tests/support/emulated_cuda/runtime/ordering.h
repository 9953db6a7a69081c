#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../order/access_check.h"

namespace spillway::emulated {

/// The happens-before check of this process, told by the functions of CUDA what they submit and
/// what the host learns. A conflict ends the process. All of it does nothing where
/// EMU_CUDA_CHECK=0. Thread-safe.
namespace ordering {

int add_stream(std::string name);

/// A piece of work is submitted.
void begin(int stream);

/// The work that began last uses memory of a device, or pinned memory of the host. Pageable memory
/// is ignored.
void use(int stream, const void* address, std::size_t bytes, Use kind, const char* what);

/// The same for copies: pinned memory is protected from the host, too, until it learns that the
/// work is done.
void use_protected(int stream, const void* address, std::size_t bytes, Use kind, const char* what);

enum class Protection : std::uint8_t { kNone, kFromHost };

/// One of the above, of a stream that is captured: it is checked at each launch of the graph.
struct Access {
  const void* address;
  std::size_t bytes;
  Use kind;
  std::string what;
  Protection protection;
};
void use(int stream, const Access& access);

/// Until the end, accesses of the stream are kept.
void begin_capture(int stream);
/// Those since the last call.
std::vector<Access> take_captured(int stream);
void end_capture(int stream);

/// What an event records that is put into the stream now.
Clock now(int stream);

void wait(int stream, const Clock& event);

/// One stream waits for all that is in the other.
void wait_for_stream(int stream, int other);

void host_learns(const Clock& event);

/// The host frees or unmaps the bytes.
void take_away(const void* address, std::size_t bytes, const char* what);

}  // namespace ordering
}  // namespace spillway::emulated
