# Tests under mpirun (tests/mpi/): the programs of tests/comm with processes for ranks, and plait train itself.
foreach(name comm comm_calls departure)
  add_executable(mpi_${name} tests/comm/test_${name}.c tests/mpi/ranks_mpi.c)
  target_include_directories(mpi_${name} PRIVATE tests/comm)
  target_link_libraries(mpi_${name} plait_library PkgConfig::CMOCKA)
endforeach()
foreach(name failures large by_hand memory heartbeats world_run)
  add_executable(mpi_${name} tests/mpi/${name}.c)
  target_link_libraries(mpi_${name} plait_library)
endforeach()

target_link_options(mpi_memory PRIVATE -Wl,--wrap=xcalloc,--wrap=xrealloc) # it counts them

file(GLOB PLAIT_MPI_SCRIPTS CONFIGURE_DEPENDS tests/mpi/mpi_*.sh)
foreach(script ${PLAIT_MPI_SCRIPTS})
  get_filename_component(name ${script} NAME_WE)
  add_test(NAME test_${name} COMMAND ${script} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  set_tests_properties(test_${name} PROPERTIES TIMEOUT 900 PROCESSORS 2
    ENVIRONMENT "XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/cache;PLAIT=${CMAKE_BINARY_DIR}/plait;SOURCE=${CMAKE_SOURCE_DIR};MPIRUN=${MPIEXEC_EXECUTABLE};FOLDER=${CMAKE_BINARY_DIR}")
endforeach()
