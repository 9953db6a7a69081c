#include "spillway/base/shared_library.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/golden_part.h"

namespace spillway {
namespace {

constexpr const char* kOfAll = "libc.so.6";
constexpr const char* kOfNone = "libspillway_none.so.7";

TEST(SharedLibrary, FindsFunctionsOfWhatTheProcessHasLoaded) {
  void* const library = loaded_library(kOfAll);
  ASSERT_NE(library, nullptr);
  int (*absolute)(int) = nullptr;
  ASSERT_TRUE(find_function(library, "abs", absolute));
  EXPECT_EQ(absolute(-7), 7);
  const std::filesystem::path path = library_of(symbol_in(library, "abs"));
  EXPECT_EQ(path.filename(), kOfAll);
  EXPECT_FALSE(find_function(library, "no_such_function", absolute));
  EXPECT_EQ(absolute, nullptr);
}

TEST(SharedLibrary, SaysWhyOneCannotBeLoaded) {
  std::string reason;
  EXPECT_EQ(loaded_library(kOfNone), nullptr);
  EXPECT_EQ(load_library(kOfNone, reason), nullptr);
  GoldenPart().add(reason);
  reason.clear();
  EXPECT_EQ(load_library(kOfAll, reason), loaded_library(kOfAll));
  EXPECT_EQ(reason, "");
}

TEST(SharedLibrary, KnowsNoLibraryOfWhatLiesInNone) {
  const int local = 0;
  EXPECT_EQ(library_of(&local), "");
}

}  // namespace
}  // namespace spillway
