# Installs into a fresh prefix, builds examples/embed against it with find_package, runs both programs from there.
# -DSOURCE= -DBINARY= -DWORK= -DCONFIG=
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE rc OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${rc}\n${out}\n${err}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BINARY} --prefix ${WORK}/prefix)
if(EXISTS ${WORK}/prefix/share/danqing/models/danqing-mini/golden)
  message(FATAL_ERROR "the goldens must not be installed")
endif()
run(${CMAKE_COMMAND} -S ${SOURCE}/examples/embed -B ${WORK}/embed -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${WORK}/embed)
run(${WORK}/embed/embed "a red apple" ${WORK}/embedded.png ${WORK}/prefix/share/danqing/models/danqing-mini)
run(${WORK}/prefix/bin/danqing generate "a red apple" --seed 42 -o ${WORK}/installed.png)
# Both must have drawn the same picture: same pixels, same metadata, so the same file.
file(SHA256 ${WORK}/embedded.png a)
file(SHA256 ${WORK}/installed.png b)
if(NOT a STREQUAL b)
  message(FATAL_ERROR "the embedded program and the installed command drew different files")
endif()
