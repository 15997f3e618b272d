# Finds an MPI as PLAIT_MPI says: AUTO (where one can be used), ON (it must be there) or OFF. Leaves MPI_C_FOUND and MPI::MPI_C.
#
# find_package(MPI) may end the whole configuration, also when it is not REQUIRED: on Debian openmpi-bin, which other packages bring
# along, has an mpicc that names folders of libopenmpi-dev, which are not there. So it is tried in a CMake of its own first, until
# that has succeeded once.
set(PLAIT_MPI AUTO CACHE STRING "ranks as processes: AUTO (where an MPI is found), ON (an MPI must be there) or OFF")
set_property(CACHE PLAIT_MPI PROPERTY STRINGS AUTO ON OFF)

# Sets PLAIT_MPI_WORKS where it succeeds. What the user has chosen of compilers and MPIs is handed on.
function(probe_mpi)
  set(options)
  get_cmake_property(cached CACHE_VARIABLES)
  foreach(name ${cached})
    if(name MATCHES "^MPI|^CMAKE_(C_COMPILER|MAKE_PROGRAM|TOOLCHAIN_FILE|PREFIX_PATH)$")
      string(REPLACE ";" "\\;" value "${${name}}")
      list(APPEND options "-D${name}=${value}")
    endif()
  endforeach()
  file(REMOVE_RECURSE ${CMAKE_BINARY_DIR}/mpi-probe)
  execute_process(COMMAND ${CMAKE_COMMAND} -G ${CMAKE_GENERATOR} ${options} -S ${CMAKE_CURRENT_LIST_DIR}/mpi-probe
    -B ${CMAKE_BINARY_DIR}/mpi-probe RESULT_VARIABLE status OUTPUT_FILE ${CMAKE_BINARY_DIR}/mpi-probe.log
    ERROR_FILE ${CMAKE_BINARY_DIR}/mpi-probe.log)
  if(status EQUAL 0)
    set(PLAIT_MPI_WORKS ON CACHE INTERNAL "a program can be built with the MPI that was found")
  endif()
endfunction()

# Why there is none, as a sentence.
function(describe_missing_mpi out)
  set(packages "libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich")
  find_program(PLAIT_MPI_COMPILER mpicc${MPI_EXECUTABLE_SUFFIX})
  find_program(PLAIT_MPI_LAUNCHER NAMES mpirun${MPI_EXECUTABLE_SUFFIX} mpiexec${MPI_EXECUTABLE_SUFFIX})
  if(PLAIT_MPI_COMPILER)
    set(why "${PLAIT_MPI_COMPILER} cannot build a program, its headers or libraries are missing")
  elseif(PLAIT_MPI_LAUNCHER)
    set(why "${PLAIT_MPI_LAUNCHER} is here, but no compiler, headers and libraries")
  else()
    set(why "none was found")
  endif()
  unset(PLAIT_MPI_COMPILER CACHE) # they may be there next time
  unset(PLAIT_MPI_LAUNCHER CACHE)
  set(${out} "${why} (Debian: ${packages})" PARENT_SCOPE)
endfunction()

if(PLAIT_MPI AND NOT PLAIT_FUZZ)
  if(NOT PLAIT_MPI_WORKS)
    probe_mpi()
  endif()
  if(PLAIT_MPI_WORKS)
    find_package(MPI 3.1 QUIET COMPONENTS C)
  endif()
  if(MPI_C_FOUND)
    message(STATUS "MPI: ${MPI_C_COMPILER}, MPI-${MPI_C_VERSION}")
  else()
    describe_missing_mpi(why)
    if(PLAIT_MPI STREQUAL "AUTO")
      message(STATUS "MPI: left out: ${why}")
    else()
      message(FATAL_ERROR "PLAIT_MPI is ${PLAIT_MPI}, but no MPI can be used: ${why}. See ${CMAKE_BINARY_DIR}/mpi-probe.log")
    endif()
  endif()
endif()
