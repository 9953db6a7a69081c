#include "fio.h"

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "spillway/base/error.h"
#include "spillway/swap/spill_store.h"

namespace spillway::benchmarks {
namespace {

struct Closed {
  void operator()(std::FILE* pipe) const { ::pclose(pipe); }
};

std::string output_of(const std::string& command) {
  std::unique_ptr<std::FILE, Closed> pipe(::popen(command.c_str(), "r"));
  if (!pipe) throw IoError("cannot run: {}", command);
  std::string text;
  std::array<char, 4096> part{};
  while (const std::size_t size = std::fread(part.data(), 1, part.size(), pipe.get()))
    text.append(part.data(), size);
  if (::pclose(pipe.release()) != 0) throw IoError("failed: {}\n{}", command, text);
  return text;
}

}  // namespace

Rates run_fio(const std::string& file, const std::string& pattern, const Load& load) {
  const std::uint64_t skipped = swap::kExtentBytes - load.block.count();
  const std::uint64_t moved = load.file_size / Bytes(swap::kExtentBytes) * load.block.count();
  // Its buffers in huge pages, as frames are: small ones make a block hundreds of segments.
  const std::string text = output_of(message(
      "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=busy --filename='{}' --size={} "
      "--io_size={} --bs={} --iodepth={} --rw={}{} "
      "--ioengine=io_uring --direct=1 --randrepeat=1 --refill_buffers=0 --output-format=json",
      file, load.file_size.count(), moved, load.block.count(), load.depth, pattern,
      skipped == 0 ? std::string() : message(":{}", skipped)));
  const auto brace = text.find('{');  // notes may come first
  if (brace == std::string::npos) throw IoError("fio said nothing: {}", text);
  const nlohmann::json job = nlohmann::json::parse(text.substr(brace)).at("jobs").at(0);
  return {job.at("write").at("bw_bytes").get<double>() / 1e9,
          job.at("read").at("bw_bytes").get<double>() / 1e9};
}

}  // namespace spillway::benchmarks
