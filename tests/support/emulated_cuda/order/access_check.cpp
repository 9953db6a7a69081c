#include "access_check.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

namespace spillway::emulated {

std::string Conflict::text() const {
  std::ostringstream out;
  out << "not ordered: '" << later << "' on " << later_place << " " << later_verb << " memory at 0x"
      << std::hex << address << " that '" << earlier << "' on " << earlier_place << " "
      << earlier_verb;
  if (earlier_address != address) out << " at 0x" << earlier_address;
  out << ", and nothing makes the second wait; let " << later_place
      << " wait for an event that is recorded behind it on " << earlier_place;
  return out.str();
}

int AccessCheck::add_stream(std::string name) {
  streams_.push_back({std::move(name), {}});
  return static_cast<int>(streams_.size()) - 1;
}

std::uint64_t AccessCheck::begin(int stream) {
  Clock& clock = streams_[index(stream)].clock;
  clock.learn(host_);
  return clock.advance(stream);
}

const std::string* AccessCheck::intern(std::string_view what) {
  auto found = names_.find(what);
  if (found == names_.end()) found = names_.emplace(what).first;
  return &*found;
}

// Makes `address` a border between ranges.
void AccessCheck::split(std::uintptr_t address) {
  auto at = ranges_.upper_bound(address);
  if (at == ranges_.begin()) return;
  --at;
  if (at->first == address || at->second.end <= address) return;
  Range right = at->second;
  at->second.end = address;
  ranges_.emplace(address, std::move(right));
}

Conflict AccessCheck::conflict_with(const Access& earlier, const char* verb,
                                    std::uintptr_t first) const {
  Conflict found;
  found.earlier = *earlier.what;
  found.earlier_place = streams_[index(earlier.stream)].name;
  found.earlier_verb = verb;
  found.earlier_address = first + earlier.offset;
  return found;
}

// What of the range at `first` has not happened before `now`; the parties of the earlier use alone
// are filled in.
std::optional<Conflict> AccessCheck::against(const Range& range, Use kind, const Clock& now,
                                             std::uintptr_t first) const {
  const auto unknown = [&now](const Access& earlier) {
    return earlier.stream >= 0 && now.of(earlier.stream) < earlier.tick;
  };
  if (unknown(range.write)) return conflict_with(range.write, "wrote", first);
  if (kind == Use::kRead) return std::nullopt;
  for (const Access& earlier : range.reads) {
    if (unknown(earlier)) return conflict_with(earlier, "read", first);
  }
  return std::nullopt;
}

void AccessCheck::read(std::uintptr_t address, std::uintptr_t end, const Access& mine) {
  for (auto at = ranges_.lower_bound(address); address < end;) {
    if (at == ranges_.end() || at->first > address) {
      const std::uintptr_t stop = at == ranges_.end() ? end : std::min(end, at->first);
      at = ranges_.emplace_hint(at, address, Range{stop, {}, {}});
    }
    auto& reads = at->second.reads;
    const auto same = std::find_if(reads.begin(), reads.end(),
                                   [&](const Access& one) { return one.stream == mine.stream; });
    if (same == reads.end()) {
      reads.push_back(mine);
    } else {
      *same = mine;
    }
    address = at->second.end;
    ++at;
  }
}

std::optional<Conflict> AccessCheck::use(int stream, std::uintptr_t first, std::size_t bytes,
                                         Use kind, std::string_view what, std::uintptr_t offset) {
  if (bytes == 0) return std::nullopt;
  const std::uintptr_t end = first + bytes;
  split(first);
  split(end);
  const Stream& mine = streams_[index(stream)];
  const auto begin = ranges_.lower_bound(first);
  auto last = begin;
  for (; last != ranges_.end() && last->first < end; ++last) {
    if (auto found = against(last->second, kind, mine.clock, last->first)) {
      found->later = what;
      found->later_place = mine.name;
      found->later_verb = kind == Use::kWrite ? "writes" : "reads";
      found->address = last->first + offset;
      return found;
    }
  }
  const Access access{stream, mine.clock.of(stream), intern(what), offset};
  if (kind == Use::kWrite) {
    // Whatever the borders were, the bytes have one history from here on.
    const auto hint = ranges_.erase(begin, last);
    ranges_.emplace_hint(hint, first, Range{end, access, {}});
  } else {
    read(first, end, access);
  }
  return std::nullopt;
}

bool AccessCheck::is_known_to_host(const Access& access) const {
  return access.stream < 0 || access.tick <= host_.of(access.stream);
}

std::optional<Conflict> AccessCheck::take_away(std::uintptr_t first, std::size_t bytes,
                                               std::string_view what, std::uintptr_t offset) {
  const std::uintptr_t end = first + bytes;
  split(first);
  split(end);
  for (auto at = ranges_.lower_bound(first); at != ranges_.end() && at->first < end;) {
    Range& range = at->second;
    const auto is_too_early = [&](const Access& access) {
      return access.offset == offset && !is_known_to_host(access);
    };
    const auto read = std::find_if(range.reads.begin(), range.reads.end(), is_too_early);
    const bool is_written = is_too_early(range.write);
    if (is_written || read != range.reads.end()) {
      Conflict found = is_written ? conflict_with(range.write, "wrote", at->first)
                                  : conflict_with(*read, "read", at->first);
      found.later = what;
      found.later_place = "the host";
      found.later_verb = "takes away";
      found.address = at->first + offset;
      return found;
    }
    std::erase_if(range.reads, [this](const Access& access) { return is_known_to_host(access); });
    if (is_known_to_host(range.write)) range.write = {};
    const bool is_unused = range.write.stream < 0 && range.reads.empty();
    at = is_unused ? ranges_.erase(at) : std::next(at);
  }
  return std::nullopt;
}

}  // namespace spillway::emulated
