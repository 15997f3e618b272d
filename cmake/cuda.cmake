# Kernels for CUDA (src/device/cuda/kernels), compiled twice: by nvcc into code for cards, which plait has in itself, and by gcc into the
# emulated driver. PLAIT_CUDA=AUTO: by nvcc where it is found.
set(PLAIT_CUDA AUTO CACHE STRING "compile kernels for CUDA devices with nvcc: AUTO (where it is found), ON or OFF")
set(PLAIT_NVCC "")
if(NOT PLAIT_CUDA STREQUAL "OFF")
  find_program(PLAIT_NVCC_FOUND nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  mark_as_advanced(PLAIT_NVCC_FOUND)
  if(PLAIT_NVCC_FOUND)
    set(PLAIT_NVCC ${PLAIT_NVCC_FOUND})
  elseif(PLAIT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PLAIT_CUDA is ON, and there is no nvcc on the PATH, in CUDA_HOME/bin or in /usr/local/cuda/bin")
  endif()
endif()

set(folder ${CMAKE_BINARY_DIR}/cuda)
file(MAKE_DIRECTORY ${folder})
file(GLOB PLAIT_KERNELS CONFIGURE_DEPENDS src/device/cuda/kernels/*.cu)

# A source of kernels and the headers that it includes, by name or, as each_real.h does, by a macro. Without the marks of faults, which
# change no kernel of a build without faults, and change all in one with faults.
function(kernel_inputs_of source out)
  set(all ${source})
  set(rest ${source})
  while(rest)
    list(POP_FRONT rest one)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${one}) # it may include another one tomorrow
    file(STRINGS ${one} lines REGEX "^ *#(include|define [A-Z_]+) \"[a-z_0-9/]+[.](h|def)\"")
    foreach(line ${lines})
      string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*" "\\1" path "${line}")
      set(path ${CMAKE_SOURCE_DIR}/src/${path})
      if(NOT path IN_LIST all AND NOT path MATCHES "/base/faults?[.]")
        list(APPEND all ${path})
        list(APPEND rest ${path})
      endif()
    endforeach()
  endwhile()
  set(${out} ${all} PARENT_SCOPE)
endfunction()

set(PLAIT_NVCC_FLAGS -std=c++17 -O3 -Xptxas -v -I${CMAKE_SOURCE_DIR}/src -gencode arch=compute_80,code=[sm_80,compute_80]
  -gencode arch=compute_90,code=sm_90)
set(images "// Made by cmake/cuda.cmake.\n#include \"device/cuda/images.h\"\n#define TEXT_(x) #x\n#define TEXT(x) TEXT_(x)\n")
set(rows)
set(fatbins)
set(PLAIT_KERNEL_HASHES)
foreach(source ${PLAIT_KERNELS})
  get_filename_component(name ${source} NAME_WE)
  kernel_inputs_of(${source} inputs)
  set(hash ${folder}/${name}_hash.h) # both compilers include it
  list(JOIN inputs "\n" lines) # tests/device/test_kernel_inputs.sh compares them with what a compiler reads
  file(GENERATE OUTPUT ${folder}/${name}.inputs CONTENT "${lines}\n")
  add_custom_command(OUTPUT ${hash} DEPENDS ${inputs} ${folder}/${name}.inputs ${CMAKE_SOURCE_DIR}/cmake/hash.cmake
    COMMAND ${CMAKE_COMMAND} -DINPUTS=${folder}/${name}.inputs -DOUTPUT=${hash} -P ${CMAKE_SOURCE_DIR}/cmake/hash.cmake VERBATIM)
  list(APPEND PLAIT_KERNEL_HASHES ${hash})
  string(APPEND images "#include \"${hash}\"\nstatic const char hash_${name}[] = TEXT(KERNELS_HASH);\n#undef KERNELS_HASH\n")
  if(PLAIT_NVCC)
    set(fatbin ${folder}/${name}.fatbin)
    # what ptxas says of each kernel stays in a file, which tests/device/test_cuda_ptxas.sh reads
    add_custom_command(OUTPUT ${fatbin} DEPENDS ${inputs} ${hash} ${CMAKE_SOURCE_DIR}/cmake/cuda.cmake
      COMMENT "Building CUDA kernels ${name}.cu"
      COMMAND sh -c "\"$@\" >\"$0\" 2>&1 || { cat \"$0\"; exit 1; }" ${folder}/${name}.ptxas
        ${PLAIT_NVCC} ${PLAIT_NVCC_FLAGS} -include ${hash} -fatbin ${source} -o ${fatbin} VERBATIM)
    list(APPEND fatbins ${fatbin})
    string(APPEND images "extern const char image_${name}[] __attribute__((visibility(\"hidden\")));\n"
      "__asm__(\".section .rodata\\n.balign 64\\n.globl image_${name}\\n.hidden image_${name}\\nimage_${name}:\\n.incbin \\\"${fatbin}\\\"\\n\"\n"
      "        \".previous\\n\");\n")
    list(APPEND rows "{\"${name}\", image_${name}, hash_${name}}")
  else()
    list(APPEND rows "{\"${name}\", 0, hash_${name}}")
  endif()
endforeach()
string(REPLACE ";" ", " rows "${rows}")
set(version 0)
if(PLAIT_NVCC)
  execute_process(COMMAND ${PLAIT_NVCC} --version OUTPUT_VARIABLE version)
  string(REGEX REPLACE ".*release ([0-9]+)\\.([0-9]+).*" "\\1 * 1000 + \\2 * 10" version "${version}") # 13.0: 13000
endif()
add_custom_target(kernels_hash DEPENDS ${PLAIT_KERNEL_HASHES})
string(APPEND images
  "const int kernels_cuda = ${version};\nconst KernelImage kernel_images[] = {${rows}, {0, 0, 0}};\n")
file(GENERATE OUTPUT ${folder}/kernel_images.c CONTENT "${images}")
set_source_files_properties(${folder}/kernel_images.c PROPERTIES GENERATED ON OBJECT_DEPENDS "${PLAIT_KERNEL_HASHES};${fatbins}")
target_sources(plait_library PRIVATE ${folder}/kernel_images.c)
