#include "spillway/device/direct_files.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "spillway/device/cpu.h"

namespace spillway::device {
namespace {

/// Moves what it is told to, call by call.
class ScriptedFile final : public DirectFile {
 public:
  explicit ScriptedFile(std::vector<std::size_t> moves) : moves_(std::move(moves)) {}
  std::vector<std::pair<std::uint64_t, Bytes>> calls;  ///< Offset and size.

 private:
  Moved do_move(Way, DeviceSpan memory, std::uint64_t offset) override {
    calls.emplace_back(offset, memory.size);
    if (calls.size() > moves_.size()) return {0, "the disk is gone"};
    return {moves_[calls.size() - 1], {}};
  }
  const std::vector<std::size_t> moves_;
};

class DirectFileTest : public testing::Test {
 protected:
  std::string move(ScriptedFile& file) {
    return file.move(DirectFile::Way::kFromFile, memory_.span().first(12_KiB), 4096).error;
  }
  const std::unique_ptr<Device> device_ = make_cpu_device();
  const DeviceMemory memory_ = device_->allocate(12_KiB);
};

TEST_F(DirectFileTest, GoOnAtTheLastWholeBlock) {
  ScriptedFile file({5000, 8192});
  EXPECT_EQ(move(file), "");
  EXPECT_EQ(file.calls,
            (std::vector<std::pair<std::uint64_t, Bytes>>{{4096, 12_KiB}, {8192, 8_KiB}}));
}

TEST_F(DirectFileTest, SayWhyNotAllHasCome) {
  ScriptedFile ends({4096, 100});
  EXPECT_EQ(move(ends), "4196 of 12288 bytes were moved, and no more");
  ScriptedFile fails({4096});
  EXPECT_EQ(move(fails), "the disk is gone");
}

TEST_F(DirectFileTest, AreNothingThatTheHostNeeds) { EXPECT_EQ(direct_file_io(*device_), nullptr); }

}  // namespace
}  // namespace spillway::device
