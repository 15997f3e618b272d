# Finds UCX as PLAIT_UCX says: AUTO (where its headers are), ON (they must be there) or OFF. Leaves UCX_FOUND. Only headers are
# needed: the library is loaded when a world of net is made (src/comm/net_ucx.c).
set(PLAIT_UCX AUTO CACHE STRING "shared memory between ranks that are processes: AUTO (where UCX is found), ON (it must be there) or OFF")
set_property(CACHE PLAIT_UCX PROPERTY STRINGS AUTO ON OFF)

set(UCX_FOUND OFF)
if(PLAIT_UCX AND NOT PLAIT_FUZZ)
  pkg_check_modules(UCX QUIET ucx>=1.13)
  if(UCX_FOUND)
    message(STATUS "UCX: ${UCX_VERSION}")
  elseif(PLAIT_UCX STREQUAL "AUTO")
    message(STATUS "UCX: left out: no version 1.13 or later was found (Debian: libucx-dev)")
  else()
    message(FATAL_ERROR "PLAIT_UCX is ${PLAIT_UCX}, but no UCX 1.13 or later was found (Debian: libucx-dev)")
  endif()
endif()
