# The library that other programs link, and what an installation holds.
add_library(danqing SHARED ${CMAKE_SOURCE_DIR}/cmake/library.cpp)
# The API is defined in these layers; take them whole, the rest as needed.
target_link_libraries(danqing PRIVATE
  "$<LINK_LIBRARY:WHOLE_ARCHIVE,danqing_pipeline>" "$<LINK_LIBRARY:WHOLE_ARCHIVE,danqing_image>" danqing_memory)
# danqing_image is also a plain dependency of danqing_pipeline.
set_property(TARGET danqing PROPERTY LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,danqing_pipeline,danqing_image")
target_include_directories(danqing INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(danqing INTERFACE cxx_std_20)
set_target_properties(danqing PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0 EXPORT_NAME danqing
  OUTPUT_NAME danqing INSTALL_RPATH "$ORIGIN/danqing;$ORIGIN")
target_link_options(danqing PRIVATE -Wl,--no-undefined)

include(CMakePackageConfigHelpers)
set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/danqing)
configure_package_config_file(cmake/danqing-config.cmake.in ${CMAKE_BINARY_DIR}/danqing-config.cmake
  INSTALL_DESTINATION ${_package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/danqing-config-version.cmake COMPATIBILITY SameMinorVersion)
install(TARGETS danqing EXPORT danqing LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT danqing NAMESPACE danqing:: FILE danqing-targets.cmake DESTINATION ${_package})
install(FILES ${CMAKE_BINARY_DIR}/danqing-config.cmake ${CMAKE_BINARY_DIR}/danqing-config-version.cmake DESTINATION ${_package})
install(DIRECTORY include/danqing DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY models/danqing-mini DESTINATION ${CMAKE_INSTALL_DATADIR}/danqing/models PATTERN golden EXCLUDE)
install(FILES LICENSE THIRD_PARTY.md README.md README.zh.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# A ggml from .deps is not a system library: it travels with us, under the names that the loader asks for.
get_filename_component(_ggml_root ${ggml_DIR}/../../.. ABSOLUTE)
cmake_path(IS_PREFIX DANQING_DEPS_DIR ${ggml_DIR} NORMALIZE _ggml_is_ours)
if(_ggml_is_ours)
  file(GLOB _ggml_libs ${_ggml_root}/lib*/libggml*.so.0)
  foreach(_lib ${_ggml_libs})
    file(REAL_PATH ${_lib} _real)
    get_filename_component(_soname ${_lib} NAME)
    install(FILES ${_real} DESTINATION ${CMAKE_INSTALL_LIBDIR}/danqing RENAME ${_soname})
  endforeach()
endif()
