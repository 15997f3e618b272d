# Finds libmicrohttpd as PLAIT_MICROHTTPD says: AUTO (where its headers are), ON (they must be there) or OFF. Leaves MICROHTTPD_FOUND.
# Only headers are needed: the library is loaded by plait serve (src/serve/http.c).
set(PLAIT_MICROHTTPD AUTO CACHE STRING "plait serve: AUTO (where libmicrohttpd is found), ON (it must be there) or OFF")
set_property(CACHE PLAIT_MICROHTTPD PROPERTY STRINGS AUTO ON OFF)

set(MICROHTTPD_FOUND OFF)
if(PLAIT_MICROHTTPD AND NOT PLAIT_FUZZ)
  pkg_check_modules(MICROHTTPD QUIET libmicrohttpd>=0.9.71)
  if(MICROHTTPD_FOUND)
    message(STATUS "libmicrohttpd: ${MICROHTTPD_VERSION}")
  elseif(PLAIT_MICROHTTPD STREQUAL "AUTO")
    message(STATUS "libmicrohttpd: left out: no version 0.9.71 or later was found (Debian: libmicrohttpd-dev)")
  else()
    message(FATAL_ERROR "PLAIT_MICROHTTPD is ${PLAIT_MICROHTTPD}, but no libmicrohttpd 0.9.71 or later was found (Debian: libmicrohttpd-dev)")
  endif()
endif()
