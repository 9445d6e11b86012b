# One static library per layer of docs/architecture.md; a layer sees only the layers named in DEPS.
add_library(danqing_options INTERFACE)
target_include_directories(danqing_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_definitions(danqing_options INTERFACE DANQING_VERSION="${PROJECT_VERSION}"
                           JSON_USE_IMPLICIT_CONVERSIONS=0)
target_compile_options(danqing_options INTERFACE -Wall -Wextra -Wshadow -Wno-missing-field-initializers
                       $<$<BOOL:${DANQING_WERROR}>:-Werror>)
# GCC 12 sees overlapping copies where std::string only assigns a literal (GCC bug 105651).
target_compile_options(danqing_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# Results must not depend on whether the compiler fuses a multiply with an add.
target_compile_options(danqing_options INTERFACE -ffp-contract=off)
if(DANQING_SANITIZE)
  string(REPLACE ";" "," _san "${DANQING_SANITIZE}")
  target_compile_options(danqing_options INTERFACE -fsanitize=${_san} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(danqing_options INTERFACE -fsanitize=${_san})
endif()

# danqing_layer(NAME [RECURSE] [DEPS layer...] [LIBS target...]): src/NAME/*.cpp as danqing_NAME.
function(danqing_layer name)
  cmake_parse_arguments(L "RECURSE" "" "DEPS;LIBS" ${ARGN})
  if(L_RECURSE)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  endif()
  list(TRANSFORM L_DEPS PREPEND danqing_)
  if(sources)
    add_library(danqing_${name} STATIC ${sources})
    target_link_libraries(danqing_${name} PUBLIC danqing_options ${L_DEPS} ${L_LIBS})
  else()
    add_library(danqing_${name} INTERFACE)
    target_link_libraries(danqing_${name} INTERFACE danqing_options ${L_DEPS} ${L_LIBS})
  endif()
endfunction()

# danqing_test(NAME LAYERS layer... [SOURCES file...]): tests/NAME/*.cpp as test_NAME, registered case by case.
function(danqing_test name)
  cmake_parse_arguments(T "" "" "LAYERS;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*.cpp)
  if(NOT sources)
    return()
  endif()
  list(TRANSFORM T_LAYERS PREPEND danqing_)
  add_executable(test_${name} ${sources})
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(test_${name} PRIVATE ${T_LAYERS} danqing_testing GTest::gmock GTest::gtest_main)
  gtest_discover_tests(test_${name} TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 120
                       PROPERTIES TIMEOUT 600 LABELS "${name};${T_LABELS}")
endfunction()
