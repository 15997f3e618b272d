# For 64-bit ARM with Debian's cross compiler, against the folder that scripts/arm64-root makes:
#   cmake -G Ninja -S . -B build-arm64 -DCMAKE_TOOLCHAIN_FILE=cmake/arm64.cmake -DARM64_ROOT=$PWD/build-arm64/root
# Programs name the folder's dynamic linker and libraries, so that they run under qemu-user without a setting (scripts/nightly arm64).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(ARM64_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build-arm64/root CACHE PATH "the folder that scripts/arm64-root made")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ARM64_ROOT)
get_filename_component(CMAKE_SYSROOT ${ARM64_ROOT} ABSOLUTE)
if(NOT EXISTS ${CMAKE_SYSROOT}/complete)
  message(FATAL_ERROR "ARM64_ROOT is ${ARM64_ROOT}, which holds no arm64 packages: run scripts/arm64-root ${ARM64_ROOT}")
endif()
set(libraries ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu ${CMAKE_SYSROOT}/lib/aarch64-linux-gnu)
list(JOIN libraries ":" path)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--dynamic-linker=${CMAKE_SYSROOT}/lib/ld-linux-aarch64.so.1 -Wl,--disable-new-dtags,-rpath,${path}")

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
