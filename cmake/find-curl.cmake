# Finds libcurl as PLAIT_CURL says: AUTO (where its headers are), ON (they must be there) or OFF. Leaves CURL_FOUND. Only headers are
# needed: the library is loaded when machines meet in etcd (src/elastic/etcd_http.c).
set(PLAIT_CURL AUTO CACHE STRING "machines that meet in etcd: AUTO (where libcurl is found), ON (it must be there) or OFF")
set_property(CACHE PLAIT_CURL PROPERTY STRINGS AUTO ON OFF)

set(CURL_FOUND OFF)
if(PLAIT_CURL AND NOT PLAIT_FUZZ)
  pkg_check_modules(CURL QUIET libcurl>=7.85)
  if(CURL_FOUND)
    message(STATUS "libcurl: ${CURL_VERSION}")
  elseif(PLAIT_CURL STREQUAL "AUTO")
    message(STATUS "libcurl: left out: no version 7.85 or later was found (Debian: libcurl4-openssl-dev)")
  else()
    message(FATAL_ERROR "PLAIT_CURL is ${PLAIT_CURL}, but no libcurl 7.85 or later was found (Debian: libcurl4-openssl-dev)")
  endif()
endif()
