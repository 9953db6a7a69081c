# spillway_add_library(<name> LAYER <n>
#                      SOURCES <file>... [HEADERS include/spillway/...]
#                      [DEPENDS spillway::<lower>...] [PRIVATE_DEPENDS <target>...])
#
# One folder, one call: the static library spillway_<name>, alias spillway::<name>.
# DEPENDS are visible to users of the headers, so only Spillway's own libraries and spillway_torch
# may stand there; PRIVATE_DEPENDS may also name third-party imported targets.

# Stops unless spillway::x of a strictly lower layer, or (where ALLOWED) a foreign target.
function(spillway_check_dependency name layer dependency visibility)
  set(here "spillway::${name} (layer ${layer}, ${CMAKE_CURRENT_SOURCE_DIR})")
  if(NOT TARGET ${dependency})
    message(FATAL_ERROR
      "${here} ${visibility} ${dependency}, which is not defined. "
      "Lower layers are added first; check the spelling, or the order in the root CMakeLists.txt.")
  endif()
  if(dependency STREQUAL "spillway_torch")
    return()
  endif()
  get_target_property(real ${dependency} ALIASED_TARGET)
  if(NOT real)
    set(real ${dependency})
  endif()
  get_target_property(lower ${real} SPILLWAY_LAYER)
  if(lower MATCHES "^[0-9]+$")
    if(NOT lower LESS layer)
      message(FATAL_ERROR
        "${here} ${visibility} ${dependency} (layer ${lower}). "
        "An arrow must point to a strictly lower layer.")
    endif()
  elseif(visibility STREQUAL "DEPENDS")
    message(FATAL_ERROR
      "${here} DEPENDS ${dependency}, which is not a Spillway library. "
      "No public header includes a third-party library: name it in PRIVATE_DEPENDS.")
  endif()
endfunction()

function(spillway_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LAYER" "SOURCES;HEADERS;DEPENDS;PRIVATE_DEPENDS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
      "spillway_add_library(${name}) has unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR
      "spillway_add_library(${name}) has arguments without a value: ${arg_KEYWORDS_MISSING_VALUES}")
  endif()
  if(NOT arg_LAYER MATCHES "^[0-9]+$")
    message(FATAL_ERROR "spillway_add_library(${name}) needs LAYER <number>, got '${arg_LAYER}'")
  endif()
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "spillway_add_library(${name}) needs SOURCES")
  endif()
  foreach(header IN LISTS arg_HEADERS)
    if(NOT header MATCHES "^include/spillway/")
      message(FATAL_ERROR
        "spillway_add_library(${name}) has the public header ${header} outside include/spillway/. "
        "Move it there, or list a private header in SOURCES.")
    endif()
  endforeach()
  foreach(visibility IN ITEMS DEPENDS PRIVATE_DEPENDS)
    foreach(dependency IN LISTS arg_${visibility})
      spillway_check_dependency(${name} ${arg_LAYER} ${dependency} ${visibility})
    endforeach()
  endforeach()

  set(target spillway_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(spillway::${name} ALIAS ${target})
  target_sources(${target} PUBLIC
    FILE_SET HEADERS BASE_DIRS include FILES ${arg_HEADERS})
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_features(${target} PUBLIC cxx_std_20)
  # In the shared core the compiler may then inline, within a unit, what others could replace, and nobody does.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
  set_target_properties(${target} PROPERTIES
    SPILLWAY_LAYER ${arg_LAYER}
    POSITION_INDEPENDENT_CODE ON
    EXPORT_NAME ${name})
  target_link_libraries(${target}
    PUBLIC ${arg_DEPENDS}
    PRIVATE ${arg_PRIVATE_DEPENDS} $<BUILD_INTERFACE:spillway_warnings>)
  install(TARGETS ${target} EXPORT SpillwayTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  set_property(GLOBAL APPEND PROPERTY SPILLWAY_EXPORTED ${target})
endfunction()
