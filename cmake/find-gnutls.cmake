# Finds GnuTLS as PLAIT_GNUTLS says: AUTO (where its headers are), ON (they must be there) or OFF. Leaves GNUTLS_FOUND. Only headers
# are needed: the library is loaded when a secret is used first (src/net/tls.c).
set(PLAIT_GNUTLS AUTO CACHE STRING "jobs with a secret: AUTO (where GnuTLS is found), ON (it must be there) or OFF")
set_property(CACHE PLAIT_GNUTLS PROPERTY STRINGS AUTO ON OFF)

set(GNUTLS_FOUND OFF)
if(PLAIT_GNUTLS AND NOT PLAIT_FUZZ)
  pkg_check_modules(GNUTLS QUIET gnutls>=3.7)
  if(GNUTLS_FOUND)
    message(STATUS "GnuTLS: ${GNUTLS_VERSION}")
  elseif(PLAIT_GNUTLS STREQUAL "AUTO")
    message(STATUS "GnuTLS: left out: no version 3.7 or later was found (Debian: libgnutls28-dev)")
  else()
    message(FATAL_ERROR "PLAIT_GNUTLS is ${PLAIT_GNUTLS}, but no GnuTLS 3.7 or later was found (Debian: libgnutls28-dev)")
  endif()
endif()
