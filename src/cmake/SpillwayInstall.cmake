# Makes find_package(Spillway) work after `cmake --install`.
include(CMakePackageConfigHelpers)

set(config_folder "${CMAKE_INSTALL_LIBDIR}/cmake/Spillway")
get_property(exported GLOBAL PROPERTY SPILLWAY_EXPORTED)
if(exported)
  install(EXPORT SpillwayTargets NAMESPACE spillway:: DESTINATION "${config_folder}")
  configure_package_config_file(
    "${CMAKE_CURRENT_LIST_DIR}/SpillwayConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/SpillwayConfig.cmake"
    INSTALL_DESTINATION "${config_folder}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/SpillwayConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES
    "${PROJECT_BINARY_DIR}/SpillwayConfig.cmake"
    "${PROJECT_BINARY_DIR}/SpillwayConfigVersion.cmake"
    "${CMAKE_CURRENT_LIST_DIR}/SpillwayThirdParty.cmake"
    "${CMAKE_CURRENT_LIST_DIR}/FindLibTorch.cmake"
    "${CMAKE_CURRENT_LIST_DIR}/libtorch_versions.txt"
    DESTINATION "${config_folder}")
endif()
