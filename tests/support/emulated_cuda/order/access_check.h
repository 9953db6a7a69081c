#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "clock.h"

namespace spillway::emulated {

enum class Use : std::uint8_t { kRead, kWrite };

/// Two uses of the same bytes, one of which changes or removes them, with nothing that makes the
/// later wait for the earlier one.
struct Conflict {
  std::string later;        ///< Name of what came second.
  std::string later_place;  ///< Its stream, or "the host".
  std::string later_verb;   ///< "reads", "writes" or "takes away".
  std::string earlier;      ///< Name of what came first.
  std::string earlier_place;
  std::string earlier_verb;    ///< "read" or "wrote".
  std::uintptr_t address = 0;  ///< The first byte that both use, where the later one uses it.
  std::uintptr_t earlier_address = 0;  ///< The same byte, where the earlier one did.

  /// One sentence with both parties and the mend.
  std::string text() const;
};

/// Finds what happens in the right order by luck alone. Streams and the host have vector clocks;
/// each use of memory must have happened after all earlier ones that it conflicts with, whatever
/// the timing of this run. All threads of the host count as one, so that races between them stay
/// unseen. Thread-compatible: the caller locks.
/// Bytes are told apart by numbers, which for most memory are their addresses. Memory that lies
/// beneath several addresses has numbers of its own, and each use an *offset*, from these to the
/// addresses that it goes by.
class AccessCheck {
 public:
  /// A stream with nothing in it; `name` stands in conflicts. The index is never used again.
  int add_stream(std::string name);

  /// One more piece of work is submitted to `stream`: it happens after all before it in the stream,
  /// and after all that the host knows. Gives its number in the stream.
  std::uint64_t begin(int stream);

  /// What an event records that is put into `stream` now.
  const Clock& clock_of(int stream) const { return streams_[index(stream)].clock; }
  /// Work submitted to `stream` from now on happens after what `event` has recorded.
  void wait(int stream, const Clock& event) { streams_[index(stream)].clock.learn(event); }
  /// The host has seen that what `event` recorded is done.
  void host_learns(const Clock& event) { host_.learn(event); }
  const Clock& host() const { return host_; }

  /// The work that began last in `stream` uses `bytes` bytes from `first` on. Gives the first
  /// conflict.
  std::optional<Conflict> use(int stream, std::uintptr_t first, std::size_t bytes, Use kind,
                              std::string_view what, std::uintptr_t offset = 0);

  /// The host takes the addresses of the bytes away (frees or unmaps them), and knows what it
  /// knows: uses by these addresses must have happened before. Forgets uses that have.
  std::optional<Conflict> take_away(std::uintptr_t first, std::size_t bytes, std::string_view what,
                                    std::uintptr_t offset = 0);

  /// How many ranges are told apart; for the bound on memory.
  std::size_t ranges() const { return ranges_.size(); }

 private:
  struct Stream {
    std::string name;
    Clock clock;
  };
  struct Access {
    int stream = -1;  // None.
    std::uint64_t tick = 0;
    const std::string* what = nullptr;
    std::uintptr_t offset = 0;
  };
  struct Range {  // From its key on; nobody has used the bytes between ranges.
    std::uintptr_t end = 0;
    Access write;
    std::vector<Access> reads;  // Since the write, the last one of each stream.
  };
  using Ranges = std::map<std::uintptr_t, Range>;

  static std::size_t index(int stream) { return static_cast<std::size_t>(stream); }
  const std::string* intern(std::string_view what);
  void split(std::uintptr_t address);
  Conflict conflict_with(const Access& earlier, const char* verb, std::uintptr_t first) const;
  std::optional<Conflict> against(const Range& range, Use kind, const Clock& now,
                                  std::uintptr_t first) const;
  bool is_known_to_host(const Access& access) const;
  void read(std::uintptr_t address, std::uintptr_t end, const Access& mine);

  std::vector<Stream> streams_;
  Clock host_;
  Ranges ranges_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace spillway::emulated
