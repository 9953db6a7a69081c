#include "calls.h"

#include <optional>

#include "spillway/base/error.h"

namespace spillway::pipeline {
namespace {

/// One has ended, after `count` calls, and the other one goes on.
std::string text_of_end(const NamedCalls& ended, std::uint64_t count, const NamedCalls& longer) {
  std::string next = message("call {}", count);
  for (const ControlHash::Call& call : longer.calls)
    if (call.index == count) next += message(", {}", call.name);
  return message("{} has made {} calls in all, and {} goes on with {}", ended.rank, count,
                 longer.rank, next);
}

std::string text_of_early_end(const std::string& where) {
  return message(
      "the programs of the ranks went apart: {} (what the rank that has ended wrote last tells "
      "why: an exception, an exit, a file that is missing there; a program that ends by the clock "
      "ends "
      "at another step on each rank: count steps, or let a signal end it)",
      where);
}

}  // namespace

Packed packed_calls(const std::vector<ControlHash::Call>& calls) {
  Packer packer;
  packer.add(calls.size());
  for (const ControlHash::Call& call : calls) {
    packer.add(call.index);
    packer.add(call.after);
    packer.add(call.count);
    for (const std::uint32_t argument : call.arguments) packer.add(argument);
    packer.add(call.data);
    packer.add(call.name);
  }
  return packer.take();
}

UnpackedCalls::UnpackedCalls(const Packed& bytes) {
  Unpacker unpacker(bytes);
  for (std::uint64_t left = unpacker.number(); left > 0; --left) {
    ControlHash::Call& call = calls_.emplace_back();
    call.index = unpacker.number();
    call.after = unpacker.number();
    call.count = static_cast<std::uint32_t>(unpacker.number());
    for (std::uint32_t& argument : call.arguments)
      argument = static_cast<std::uint32_t>(unpacker.number());
    call.data = static_cast<std::uint32_t>(unpacker.number());
    names_.push_back(unpacker.text());
    call.name = names_.back();
  }
}

std::string text_apart(const NamedCalls& one, std::uint64_t ones, const NamedCalls& other,
                       std::uint64_t others) {
  const std::optional<Difference> difference = first_difference(one, other);
  if (difference && difference->is_of_data)
    return message(
        "the data differ between the ranks: {} (seed each generator on all ranks alike: Python's "
        "random, NumPy's, std::mt19937; sort listings of folders and sets, or set PYTHONHASHSEED; "
        "give all ranks the same files; fill what torch.empty has made before it is read)",
        difference->text);
  if (difference && difference->is_of_end) return text_of_early_end(difference->text);
  if (!difference && ones != others)
    return text_of_early_end(ones < others ? text_of_end(one, ones, other)
                                           : text_of_end(other, others, one));
  return message(
      "the programs of the ranks went apart: {} ({}seed the program equally on all ranks, and let "
      "nothing steer it that differs between them: clocks, host names, addresses)",
      difference ? difference->text
                 : message("{} and {} compare at other calls", one.rank, other.rank),
      difference && difference->is_of_gpu
          ? "where one sees no GPU, start no more ranks on a host than it has GPUs, or let them "
            "share one with CUDA_VISIBLE_DEVICES=0; "
          : "");
}

}  // namespace spillway::pipeline
