# Backends of cards as modules beside the program: -DDANQING_BACKENDS="vulkan;hip;cuda". tools/build_backend.sh makes them.
set(DANQING_BACKENDS "" CACHE STRING "Backends of cards to build as modules: vulkan;hip;cuda")
set(_folder ${CMAKE_INSTALL_LIBDIR}/danqing/backends)
set(_modules)
foreach(_backend ${DANQING_BACKENDS})
  if(NOT _backend MATCHES "^(vulkan|hip|cuda)$")
    message(FATAL_ERROR "DANQING_BACKENDS: expected vulkan, hip or cuda, got '${_backend}'")
  endif()
  set(_built ${DANQING_DEPS_DIR}/backends/libggml-${_backend}.so)
  set(_module ${CMAKE_BINARY_DIR}/${_folder}/libggml-${_backend}.so)
  add_custom_command(OUTPUT ${_module}
    COMMAND ${CMAKE_SOURCE_DIR}/tools/build_backend.sh ${_backend}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/${_folder}
    COMMAND ${CMAKE_COMMAND} -E copy ${_built} ${_module}
    DEPENDS ${CMAKE_SOURCE_DIR}/tools/build_backend.sh ${CMAKE_SOURCE_DIR}/tools/packages/pypi.txt
    COMMENT "ggml's ${_backend} backend" USES_TERMINAL VERBATIM)
  list(APPEND _modules ${_module})
  install(FILES ${_module} DESTINATION ${_folder})
endforeach()
if(_modules)
  # A module fits the ggml that it was built with.
  cmake_path(IS_PREFIX DANQING_DEPS_DIR "${ggml_DIR}" NORMALIZE _same)
  if(NOT _same)
    message(WARNING "DANQING_BACKENDS are built for the ggml of tools/packages/pypi.txt; the one in use is ${ggml_DIR}")
  endif()
  add_custom_target(backends ALL DEPENDS ${_modules})
endif()
