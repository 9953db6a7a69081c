#include "brain_unet/volume.h"

#include <nifti1_io.h>

#include <algorithm>
#include <memory>
#include <string>

#include "trainer/bad_input.h"

namespace brain_unet {
namespace {

using Image = std::unique_ptr<nifti_image, decltype(&nifti_image_free)>;

template <typename Stored>
std::vector<float> as_floats(const nifti_image& image) {
  const auto* stored = static_cast<const Stored*>(image.data);
  std::vector<float> values(stored, stored + image.nvox);
  // By the file format a slope of zero means: the stored values are the true ones.
  if (image.scl_slope == 0.0F) return values;
  std::transform(values.begin(), values.end(), values.begin(),
                 [&](float value) { return value * image.scl_slope + image.scl_inter; });
  return values;
}

std::vector<float> values_of(const nifti_image& image, const std::string& name) {
  switch (image.datatype) {
    case NIFTI_TYPE_UINT8: return as_floats<std::uint8_t>(image);
    case NIFTI_TYPE_INT8: return as_floats<std::int8_t>(image);
    case NIFTI_TYPE_UINT16: return as_floats<std::uint16_t>(image);
    case NIFTI_TYPE_INT16: return as_floats<std::int16_t>(image);
    case NIFTI_TYPE_UINT32: return as_floats<std::uint32_t>(image);
    case NIFTI_TYPE_INT32: return as_floats<std::int32_t>(image);
    case NIFTI_TYPE_FLOAT32: return as_floats<float>(image);
    case NIFTI_TYPE_FLOAT64: return as_floats<double>(image);
    default:
      throw trainer::BadInput("'" + name + "' holds voxels of type " +
                              nifti_datatype_string(image.datatype) + ", not plain numbers");
  }
}

}  // namespace

Volume read_volume(const std::filesystem::path& path) {
  const std::string name = path.string();
  if (!std::filesystem::is_regular_file(path))
    throw trainer::BadInput("there is no volume '" + name + "': see --data");
  nifti_set_debug_level(0);
  const Image image(nifti_image_read(name.c_str(), /*read_data=*/1), &nifti_image_free);
  if (!image || image->data == nullptr)
    throw trainer::BadInput("'" + name + "' is not a readable NIfTI volume");
  if (image->ndim < 3 || image->nvox != static_cast<std::size_t>(image->nx) * image->ny * image->nz)
    throw trainer::BadInput("'" + name + "' holds more or less than one 3-D volume");
  return {{image->nz, image->ny, image->nx},
          {image->dz, image->dy, image->dx},
          values_of(*image, name)};
}

}  // namespace brain_unet
