#include "programs.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace spillway::allreduce {
namespace {

/// Writes down steps in the order of a program that waits for each, and finds which need not.
class Writer {
 public:
  explicit Writer(std::uint32_t slices) { program_.slices = slices; }

  void send(Rank peer, std::uint32_t slice) {
    add({.kind = Step::Kind::kSend, .slice = slice, .peer = peer, .message = sent_[peer]++});
  }
  void receive(Rank peer, std::uint32_t slice, Step::Place place = {}) {
    add({.kind = Step::Kind::kReceive,
         .slice = slice,
         .peer = peer,
         .message = received_[peer]++,
         .place = place});
  }
  void sum(std::uint32_t slice, std::vector<Step::Place> operands) {
    add({.kind = Step::Kind::kAdd, .slice = slice, .operands = std::move(operands)});
  }
  void scale(std::uint32_t slice) { add({.kind = Step::Kind::kScale, .slice = slice}); }

  Program take() { return std::move(program_); }

 private:
  /// Of a place: who has written it last, and who has read it since.
  struct Use {
    std::optional<std::uint32_t> writer;
    std::vector<std::uint32_t> readers;
  };
  using Where = std::pair<Step::Place, std::uint32_t>;

  static Where where(const Step& step, Step::Place place) {
    return {place, place ? 0 : step.slice};
  }

  void add(Step step) {
    const auto self = static_cast<std::uint32_t>(program_.steps.size());
    std::vector<std::uint32_t> earlier;
    const auto read = [&](Step::Place place) {
      Use& use = uses_[where(step, place)];
      if (use.writer) earlier.push_back(*use.writer);
      use.readers.push_back(self);
    };
    const auto write = [&](Step::Place place) {
      Use& use = uses_[where(step, place)];
      if (use.writer) earlier.push_back(*use.writer);
      earlier.insert(earlier.end(), use.readers.begin(), use.readers.end());
      use = {.writer = self, .readers = {}};
      if (place) program_.staged = std::max(program_.staged, *place + 1);
    };
    if (step.kind == Step::Kind::kSend) read({});
    for (const Step::Place operand : step.operands) read(operand);
    if (step.kind != Step::Kind::kSend) write(step.place);
    std::erase(earlier, self);
    std::sort(earlier.begin(), earlier.end());
    earlier.erase(std::unique(earlier.begin(), earlier.end()), earlier.end());
    step.waits = static_cast<std::uint32_t>(earlier.size());
    for (const std::uint32_t one : earlier) program_.steps[one].followers.push_back(self);
    program_.steps.push_back(std::move(step));
  }

  Program program_;
  std::map<Rank, std::uint32_t> sent_, received_;
  std::map<Where, Use> uses_;
};

using Ranks = std::vector<Rank>;

Ranks all_ranks(std::uint32_t count) {
  Ranks ranks;
  for (std::uint32_t i = 0; i < count; ++i) ranks.push_back(Rank(i));
  return ranks;
}

/// The ring of `ranks`, in which `self` is the n-th; there are as many slices as ranks.
void write_ring(Writer& writer, const Ranks& ranks, std::uint32_t self) {
  const auto count = static_cast<std::uint32_t>(ranks.size());
  const Rank next = ranks[(self + 1) % count];
  const Rank before = ranks[(self + count - 1) % count];
  for (std::uint32_t step = 1; step < count; ++step) {
    const std::uint32_t slice = (self + 2 * count - step - 1) % count;
    const std::uint32_t place = step % 2;
    writer.send(next, (self + count - step) % count);
    writer.receive(before, slice, place);
    writer.sum(slice, {place, {}});
  }
  writer.scale(self);
  for (std::uint32_t step = 1; step < count; ++step) {
    writer.send(next, (self + count + 1 - step) % count);
    writer.receive(before, (self + count - step) % count);
  }
}

void write_tree(Writer& writer, const Ranks& ranks, std::uint32_t self) {
  const auto count = static_cast<std::uint32_t>(ranks.size());
  const std::uint32_t power = std::bit_floor(count);
  if (self >= power) {
    writer.send(ranks[self - power], 0);
    return writer.receive(ranks[self - power], 0);
  }
  const bool has_second = self + power < count;
  if (has_second) {
    writer.receive(ranks[self + power], 0, 0);
    writer.sum(0, {{}, 0});
  }
  for (std::uint32_t distance = 1; distance < power; distance *= 2) {
    const std::uint32_t peer = self ^ distance;
    writer.send(ranks[peer], 0);
    writer.receive(ranks[peer], 0, 0);
    // Equal operands on both sides, in one order: also a NaN is then the same one.
    writer.sum(0, self < peer ? std::vector<Step::Place>{{}, 0} : std::vector<Step::Place>{0, {}});
  }
  writer.scale(0);
  if (has_second) writer.send(ranks[self + power], 0);
}

/// The ranks of each host, hosts in the order of their first ranks.
std::vector<Ranks> by_host(const std::vector<std::string>& hosts) {
  std::vector<Ranks> found;
  std::map<std::string, std::size_t> numbers;
  for (std::uint32_t i = 0; i < hosts.size(); ++i) {
    const auto [at, is_new] = numbers.try_emplace(hosts[i], found.size());
    if (is_new) found.emplace_back();
    found[at->second].push_back(Rank(i));
  }
  return found;
}

}  // namespace

Program ordered_program(Rank rank, std::uint32_t ranks) {
  Writer writer(ranks);
  const std::uint32_t self = rank.value();
  // Each begins with another one, so that they do not all send to one.
  const auto peer = [&](std::uint32_t i) { return Rank((self + i) % ranks); };
  std::vector<Step::Place> operands(ranks);
  for (std::uint32_t i = 1; i < ranks; ++i) writer.send(peer(i), peer(i).value());
  for (std::uint32_t i = 1; i < ranks; ++i) {
    operands[peer(i).value()] = i - 1;
    writer.receive(peer(i), self, i - 1);
  }
  writer.sum(self, operands);
  writer.scale(self);
  for (std::uint32_t i = 1; i < ranks; ++i) writer.send(peer(i), self);
  for (std::uint32_t i = 1; i < ranks; ++i) writer.receive(peer(i), peer(i).value());
  return writer.take();
}

Program ring_program(Rank rank, std::uint32_t ranks) {
  Writer writer(ranks);
  write_ring(writer, all_ranks(ranks), rank.value());
  return writer.take();
}

Program tree_program(Rank rank, std::uint32_t ranks) {
  Writer writer(1);
  write_tree(writer, all_ranks(ranks), rank.value());
  return writer.take();
}

Program two_level_program(Rank rank, const std::vector<std::string>& hosts, bool is_small) {
  const std::vector<Ranks> groups = by_host(hosts);
  const auto here = std::find_if(groups.begin(), groups.end(), [rank](const Ranks& group) {
    return std::find(group.begin(), group.end(), rank) != group.end();
  });
  const Rank leader = here->front();
  const std::uint32_t slices = is_small ? 1 : static_cast<std::uint32_t>(groups.size());
  Writer writer(slices);
  if (rank != leader) {
    for (std::uint32_t slice = 0; slice < slices; ++slice) writer.send(leader, slice);
    for (std::uint32_t slice = 0; slice < slices; ++slice) writer.receive(leader, slice);
    return writer.take();
  }
  constexpr std::uint32_t kOfLeaders = 2;  // Places that ring and tree use.
  for (std::uint32_t slice = 0; slice < slices; ++slice) {
    std::vector<Step::Place> operands(1);
    for (std::uint32_t i = 1; i < here->size(); ++i) {
      operands.push_back(kOfLeaders + i - 1);
      writer.receive((*here)[i], slice, operands.back());
    }
    writer.sum(slice, operands);
  }
  Ranks leaders;
  for (const Ranks& group : groups) leaders.push_back(group.front());
  const auto self = static_cast<std::uint32_t>(here - groups.begin());
  if (is_small) {
    write_tree(writer, leaders, self);
  } else {
    write_ring(writer, leaders, self);
  }
  for (std::uint32_t slice = 0; slice < slices; ++slice)
    for (std::uint32_t i = 1; i < here->size(); ++i) writer.send((*here)[i], slice);
  return writer.take();
}

}  // namespace spillway::allreduce
