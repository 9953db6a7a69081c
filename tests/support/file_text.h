#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace spillway {

/// All bytes of a file. A test that calls it fails where there is none.
inline std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path << " cannot be read";
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace spillway
