# What `make install` puts where: the command, libplait, public headers, plait.pc.
include(GNUInstallDirs)

install(TARGETS plait_library ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET plait)
  install(TARGETS plait RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET plait_shared)
  install(TARGETS plait_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/plait DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# What libplait itself needs is for `pkg-config --static`, or for everybody where there is no shared library.
set(PLAIT_PC_PRIVATE ".private")
if(NOT TARGET plait_shared)
  set(PLAIT_PC_PRIVATE "")
endif()
# (The MPI's flags as CMake found them; MPI headers are not needed, plait/comm.h names none of their types.)
# The prefix is found from where plait.pc lies, so that `cmake --install --prefix` and a moved tree need no edit.
file(RELATIVE_PATH PLAIT_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" PLAIT_PC_PREFIX "${PLAIT_PC_PREFIX}")
list(JOIN MPI_C_LIBRARIES " " PLAIT_PC_MPI)
configure_file(${CMAKE_CURRENT_LIST_DIR}/plait.pc.in plait.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/plait.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Man pages and shell completion, made by the command itself. bash-completion, zsh and fish look for them below share.
if(TARGET plait AND NOT CMAKE_CROSSCOMPILING)
  set(PLAIT_SHARE ${CMAKE_CURRENT_BINARY_DIR}/share)
  add_custom_command(OUTPUT ${PLAIT_SHARE}/made COMMAND plait docs write ${PLAIT_SHARE}
    COMMAND ${CMAKE_COMMAND} -E touch ${PLAIT_SHARE}/made DEPENDS plait COMMENT "man pages and shell completion")
  add_custom_target(manuals ALL DEPENDS ${PLAIT_SHARE}/made)
  install(DIRECTORY ${PLAIT_SHARE}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
  foreach(folder bash-completion zsh fish)
    install(DIRECTORY ${PLAIT_SHARE}/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR})
  endforeach()
endif()
