# The tests: which programs and scripts there are, in which tier, of which rooms of src/, and how long they may take.
#
# tests/<folder>/test_<name>.c is one program of cmocka, tests/<folder>/test_<name>.sh one script; the other .c files of a folder are
# a library that its programs share. CMake finds them without a list. What a test is, it says in one of its first lines:
#   // tier 2; rooms elastic comm; threads numbers          (in a script # for //)
# tier   1: make test (no line: 1). 2: make check. 3: make nightly. With several, as `tier 1 2`, the test is registered once for each:
#        as test_x with PLAIT_TIER=1, which runs a sample, and as test_x.tier2 with PLAIT_TIER=2, which runs all, or with `tier 1 2 3` a
#        larger sample.
# rooms  of src/, besides that of its folder, in which a change can make it red
# labels threads: it runs under TSan, too (in .ci/run if it is of tier 1). numbers: it compares numbers; when it is red it is never taken for unsteady (.ci/run)
# tests/costs.txt has what each costs (scripts/test-costs writes it): what takes both cores is not started beside others.

if(NOT PLAIT_SANITIZE) # which has it anyway
  add_link_options(${PLAIT_LINKER_FLAG})
endif()

set(PLAIT_PATIENCE "" CACHE STRING "how many times longer than on a quiet machine tests may wait; empty: as the sanitizers need it")
set(patience ${PLAIT_PATIENCE})
if(NOT patience)
  set(patience 1)
  if(PLAIT_SANITIZE MATCHES address)
    set(patience 4)
  elseif(PLAIT_SANITIZE MATCHES thread)
    set(patience 10)
  endif()
endif()
set(limit_1 20)
set(limit_2 300)
set(limit_3 1500)

# The rooms of folders of tests that are not named like one.
set(rooms_demo train)
set(rooms_examples api)
set(rooms_mpi comm)
set(rooms_net comm net)
set(rooms_parity compile device op program runtime schedule sharding)
set(rooms_process comm)
set(rooms_python api)
set(rooms_slurm elastic)
set(rooms_fuzz base chat checkpoint comm data elastic foresight grammar machine model net recipe serve tokenizer train)

file(STRINGS ${CMAKE_SOURCE_DIR}/tests/costs.txt costs REGEX "^[^#]")
foreach(line ${costs}) # NAME SECONDS CPU-SECONDS
  if(line MATCHES "^([^ ]+) +([0-9]+)\\.?([0-9]*) +([0-9]+)\\.?([0-9]*)$")
    set(name ${CMAKE_MATCH_1})
    set(cost_${name} ${CMAKE_MATCH_2}.${CMAKE_MATCH_3}0)
    math(EXPR more "10 * (${CMAKE_MATCH_4} * 100 + 0${CMAKE_MATCH_5}) - 13 * (${CMAKE_MATCH_2} * 100 + 0${CMAKE_MATCH_3})")
    set(parallel_${name} ${more})
  endif()
endforeach()

# plait_test(NAME SOURCE COMMAND): registers what SOURCE says of itself.
# TIER n: in this one, whatever it says. ALONE: on both cores. ENVIRONMENT …: besides what all have. TARGETS …: what it needs to be built,
# else the program that it is, or plait.
function(plait_test name source command)
  cmake_parse_arguments(PARSE_ARGV 3 arg "ALONE" "TIER" "ENVIRONMENT;TARGETS")
  if(NOT arg_TARGETS)
    set(arg_TARGETS plait)
    if(TARGET "${command}")
      set(arg_TARGETS ${command})
    endif()
  endif()
  set(tiers 1)
  set(rooms)
  set(labels)
  file(STRINGS ${source} head LIMIT_COUNT 1 REGEX "^(//|#) *([Tt]ier:? [0-9]|tiers )")
  string(REPLACE "\\;" ";" head "${head}") # as file(STRINGS) writes it
  if(head MATCHES "^(//|#) tier ([1-3]( [1-3])*)(; rooms ([a-z ]+))?(; (threads|numbers|threads numbers|numbers threads))?$")
    string(REPLACE " " ";" tiers "${CMAKE_MATCH_2}")
    string(REPLACE " " ";" rooms "${CMAKE_MATCH_5}")
    string(REPLACE " " ";" labels "${CMAKE_MATCH_7}")
  elseif(head)
    message(FATAL_ERROR "${source}: \"${head}\" should be like \"// tier 2; rooms elastic comm; threads numbers\"")
  endif()
  get_filename_component(folder ${source} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  if(DEFINED rooms_${folder})
    list(APPEND rooms ${rooms_${folder}})
  else()
    list(APPEND rooms ${folder})
  endif()
  foreach(room ${rooms})
    if(NOT IS_DIRECTORY ${CMAKE_SOURCE_DIR}/src/${room})
      message(FATAL_ERROR "${source}: src/ has no room \"${room}\"")
    endif()
    list(APPEND labels room:${room})
  endforeach()
  if(arg_TIER)
    set(tiers ${arg_TIER})
  endif()
  list(GET tiers 0 lowest)
  list(GET tiers -1 highest)
  if(lowest EQUAL 1)
    add_dependencies(tier1 ${arg_TARGETS})
  endif()
  if("threads" IN_LIST labels)
    add_dependencies(threads ${arg_TARGETS})
  endif()
  foreach(tier ${tiers})
    set(registered ${name})
    set(own_labels tier${tier} ${labels})
    if(NOT tier EQUAL lowest)
      set(registered ${name}.tier${tier})
    endif()
    if(tier EQUAL 1 AND NOT highest EQUAL 1)
      list(APPEND own_labels sampled)
    endif()
    list(JOIN arg_TARGETS " " targets)
    set_property(GLOBAL APPEND PROPERTY plait_tests "${registered} ${targets}")
    add_test(NAME ${registered} COMMAND ${command} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    math(EXPR limit "${limit_${tier}} * ${patience}")
    if(PLAIT_SANITIZE MATCHES thread)
      list(APPEND arg_ENVIRONMENT TSAN_OPTIONS=halt_on_error=1 PARITY_STEPS=2)
      if(tier EQUAL 1)
        list(APPEND arg_ENVIRONMENT PARITY_SAMPLE=3)
      endif()
    endif()
    set_tests_properties(${registered} PROPERTIES TIMEOUT ${limit} SKIP_RETURN_CODE 77 LABELS "${own_labels}"
      ENVIRONMENT "XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/cache;PLAIT=${CMAKE_BINARY_DIR}/plait;SOURCE=${CMAKE_SOURCE_DIR};FOLDER=${CMAKE_BINARY_DIR};MPIRUN=${MPIEXEC_EXECUTABLE};PLAIT_TIER=${tier};PLAIT_PATIENCE=${patience};${arg_ENVIRONMENT}")
    if(DEFINED cost_${registered})
      set_tests_properties(${registered} PROPERTIES COST ${cost_${registered}})
    endif()
    if(arg_ALONE OR (DEFINED parallel_${registered} AND parallel_${registered} GREATER 0))
      set_tests_properties(${registered} PROPERTIES PROCESSORS 2)
    endif()
  endforeach()
endfunction()

# A program of tests/; one that names paths gets them.
function(plait_test_program name source)
  add_executable(${name} ${source} ${ARGN})
  target_compile_options(${name} PRIVATE -O1)
  file(STRINGS ${source} paths LIMIT_COUNT 1 REGEX "TESTS_FOLDER|PLAIT_BINARY|SOURCE_FOLDER")
  if(paths)
    target_compile_definitions(${name} PRIVATE TESTS_FOLDER="${CMAKE_SOURCE_DIR}/tests"
      PLAIT_BINARY="${CMAKE_BINARY_DIR}/plait" SOURCE_FOLDER="${CMAKE_SOURCE_DIR}")
  endif()
endfunction()

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tmp) # of tests; what one leaves there when it is killed goes with the build
set(own_tmp TMPDIR=${CMAKE_BINARY_DIR}/tmp)
add_custom_target(tier1) # what `make test` builds
add_custom_target(threads) # what tests labelled so need

if(CMOCKA_FOUND)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS tests/test_*.c)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(short ${folder} NAME)
    file(GLOB helpers CONFIGURE_DEPENDS ${folder}/*.c)
    list(FILTER helpers EXCLUDE REGEX "/test_[^/]*\\.c$")
    if(helpers AND NOT TARGET tests_${short})
      add_library(tests_${short} STATIC EXCLUDE_FROM_ALL ${helpers})
      target_compile_options(tests_${short} PRIVATE -O1)
      target_include_directories(tests_${short} PUBLIC tests ${folder})
      target_link_libraries(tests_${short} PUBLIC plait_library PkgConfig::CMOCKA)
    endif()
    plait_test_program(${name} ${source})
    target_include_directories(${name} PRIVATE tests ${folder})
    if(helpers)
      target_link_libraries(${name} tests_${short})
    endif()
    target_link_libraries(${name} plait_library PkgConfig::CMOCKA)
    plait_test(${name} ${source} ${name} ENVIRONMENT ${own_tmp})
  endforeach()
  if(UCX_FOUND) # a test sends messages of UCX itself
    set_property(SOURCE tests/comm/stranger.c APPEND PROPERTY COMPILE_DEFINITIONS PLAIT_UCX=1)
    set_property(SOURCE tests/comm/stranger.c APPEND PROPERTY INCLUDE_DIRECTORIES ${UCX_INCLUDE_DIRS})
  endif()
  foreach(name test_cuda test_emulator test_cuda_kernels test_state_code test_graph_cuda) # they load it
    add_dependencies(${name} emulated_cuda)
  endforeach()
  foreach(name test_cuda_products test_cuda_attention test_cublaslt_double test_cudnn_double)
    add_dependencies(${name} emulated_cublaslt)
  endforeach()
  add_dependencies(test_cuda_attention_plans nodevice_cuda)
  target_link_options(test_parity_bits PRIVATE -Wl,--wrap=team_each) # it watches who comes to a job
  target_link_options(test_steady_memory PRIVATE -Wl,--wrap=xcalloc,--wrap=xrealloc) # it counts them

  file(GLOB scripts CONFIGURE_DEPENDS tests/*/test_*.sh)
  foreach(script ${scripts})
    get_filename_component(name ${script} NAME_WE)
    set(targets plait)
    if(script MATCHES "/examples/" AND TARGET examples) # scripts/fuzz builds none
      list(APPEND targets examples)
    endif()
    file(STRINGS ${script} program LIMIT_COUNT 1 REGEX "^# needs (test|emulated)_[a-z_]+$") # what it runs, or loads
    if(program)
      string(REPLACE "# needs " "" program ${program})
      list(APPEND targets ${program})
    endif()
    plait_test(${name} ${script} ${script} TARGETS ${targets})
  endforeach()

  # Again with memory that the host cannot touch (src/device/far.c): the parity sample, and what reads and writes Variables.
  foreach(space far mirror)
    foreach(name test_parity_matrix test_graph_build test_session test_golden test_own_inputs)
      file(GLOB source tests/*/${name}.c)
      plait_test(${space}_${name} ${source} ${name} TIER 3 ENVIRONMENT ${own_tmp} PLAIT_SPACE=${space})
    endforeach()
    foreach(name test_resume test_stop_and_resume test_jobs test_non_finite test_inference)
      file(GLOB script tests/*/${name}.sh)
      plait_test(${space}_${name} ${script} ${script} TIER 3 ENVIRONMENT PLAIT_SPACE=${space})
    endforeach()
  endforeach()
  # A few layouts in .ci/run, with threads and with processes for ranks.
  plait_test(mirror_few_layouts ${CMAKE_SOURCE_DIR}/tests/parity/test_parity_matrix.c test_parity_matrix TIER 2
    ENVIRONMENT ${own_tmp} PLAIT_SPACE=mirror PARITY_SAMPLE=6 TEST_ONLY=fp64)
  set(script ${CMAKE_SOURCE_DIR}/tests/net/parity_real.sh)
  plait_test(mirror_processes ${script} ${script} TIER 2 TARGETS plait test_parity_matrix
    ENVIRONMENT ${own_tmp} PLAIT_SPACE=mirror "PARITY_ONLY=dp 2 cp 2 tp 1 pp 2 micro 2")
  # Graphs of one's own by the kernels of the emulated CUDA device, of which none may run on the host.
  plait_test(cuda_graph_ops ${CMAKE_SOURCE_DIR}/tests/api/test_graph_ops.c test_graph_ops TIER 2 TARGETS test_graph_ops emulated_cuda
    ENVIRONMENT ${own_tmp} PLAIT_BACKEND=cuda PLAIT_CUDA_HOST=none PLAIT_CUDA_DRIVER=${CMAKE_BINARY_DIR}/libemulated_cuda.so)
  include(cmake/process-tests.cmake)
endif()

if(NOT PLAIT_FUZZ)
  set(half_by_hand ${CMAKE_SOURCE_DIR}/examples/half_by_hand.c)
  plait_test(example_half_by_hand ${half_by_hand} example_half_by_hand)
  plait_test(example_half_by_hand_8 ${half_by_hand} "example_half_by_hand;pp=2 dp=2 tp=2;tp=8;dp=4 pp=2" TIER 2
    TARGETS example_half_by_hand)
endif()

# tests/fuzz/fuzz_<name>.c is one fuzz target. Under ctest each gets a short blind run by driver.c. The linker puts files
# in memory in the place of base/file's.
file(GLOB targets CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
add_library(tests_fuzz OBJECT tests/fuzz/fuzz.c $<$<NOT:$<BOOL:${PLAIT_FUZZ}>>:tests/fuzz/driver.c>)
target_link_libraries(tests_fuzz PRIVATE plait_library)
foreach(source ${targets})
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE "fuzz_" "" short ${name})
  add_executable(${name} ${source} $<TARGET_OBJECTS:tests_fuzz>)
  target_include_directories(${name} PRIVATE tests/fuzz)
  target_link_libraries(${name} plait_library)
  foreach(function read map unmap exists begin commit abandon)
    target_link_options(${name} PRIVATE -Wl,--wrap=file_${function})
  endforeach()
  if(PLAIT_FUZZ)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    plait_test(${name} ${source} "${CMAKE_SOURCE_DIR}/scripts/fuzz;${CMAKE_BINARY_DIR};2000;${short}" TARGETS ${name})
  endif()
endforeach()

# What .ci/run and scripts/mutants read: a line a test, its name and what it needs to be built.
get_property(lines GLOBAL PROPERTY plait_tests)
list(JOIN lines "\n" lines)
file(WRITE ${CMAKE_BINARY_DIR}/tests.txt "${lines}\n")
