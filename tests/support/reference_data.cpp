#include "support/reference_data.h"

#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace spillway {

std::vector<ReferenceFile> reference_files(const std::string& name) {
  std::vector<ReferenceFile> files{{std::string(SPILLWAY_TEST_EXTRACTS) + "/" + name, false}};
  const char* const folder = std::getenv("SPILLWAY_REFERENCE_DATA");
  if (folder != nullptr && *folder != '\0')
    files.push_back({std::string(folder) + "/" + name, true});
  for (const ReferenceFile& file : files)
    if (!std::ifstream(file.path))
      throw std::runtime_error("cannot read " + file.path +
                               " (SPILLWAY_REFERENCE_DATA names the folder that holds pipedream/, "
                               "piper/ and dtr/; unset it to use extracts alone)");
  return files;
}

}  // namespace spillway
