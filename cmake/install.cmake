# What `make install` puts where: the command, libplait, public headers, plait.pc, models, recipes, examples, manuals.
include(GNUInstallDirs)

add_custom_target(installed DEPENDS plait_library) # what `make install` builds
install(TARGETS plait_library ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET plait)
  add_dependencies(installed plait)
  install(TARGETS plait RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET plait_shared)
  add_dependencies(installed plait_shared)
  install(TARGETS plait_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY include/plait DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
# Recipes name models by ../models/NAME.json: the folders lie beside each other as here.
install(DIRECTORY models recipes clusters DESTINATION ${CMAKE_INSTALL_DATADIR}/plait)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/plait PATTERN "CMakeLists.txt" EXCLUDE)

# plait.pc: the shared library where there is one; it knows itself what it needs, so that nothing else has to be installed for
# it. plait-static.pc: the archive, and all that it needs: the libraries that plait_library is linked with, and the MPI's as
# CMake found them. (MPI headers are not needed, plait/comm.h names none of their types.) The prefix is found from where the file
# lies, so that `cmake --install --prefix` and a moved tree need no edit.
set(needed)
get_target_property(libraries plait_library LINK_LIBRARIES)
foreach(library ${libraries})
  if(library MATCHES "^PkgConfig::(.*)$")
    list(APPEND needed ${${CMAKE_MATCH_1}_STATIC_LDFLAGS})
  endif()
endforeach()
list(APPEND needed ${MPI_C_LIBRARIES} -pthread -lm)
list(REMOVE_DUPLICATES needed)
list(JOIN needed " " PLAIT_PC_NEEDED)
file(RELATIVE_PATH PLAIT_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" PLAIT_PC_PREFIX "${PLAIT_PC_PREFIX}")
set(PLAIT_PC_MPI no)
if(MPI_C_FOUND)
  set(PLAIT_PC_MPI yes)
endif()

function(install_pc name kind libs private)
  set(PLAIT_PC_NAME ${name})
  set(PLAIT_PC_KIND "${kind}")
  set(PLAIT_PC_LIBS "${libs}")
  set(PLAIT_PC_PRIVATE "${private}")
  configure_file(cmake/plait.pc.in ${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
set(archive "\${libdir}/libplait.a ${PLAIT_PC_NEEDED}")
if(TARGET plait_shared)
  install_pc(plait "" "-L\${libdir} -lplait" "${PLAIT_PC_NEEDED}")
else()
  install_pc(plait ", static library" "${archive}" "")
endif()
install_pc(plait-static ", static library" "${archive}" "")

# Man pages and shell completion, made by the command itself. bash-completion, zsh and fish look for them below share.
if(TARGET plait AND NOT CMAKE_CROSSCOMPILING)
  set(PLAIT_SHARE ${CMAKE_CURRENT_BINARY_DIR}/share)
  add_custom_command(OUTPUT ${PLAIT_SHARE}/made COMMAND plait docs write ${PLAIT_SHARE}
    COMMAND ${CMAKE_COMMAND} -E touch ${PLAIT_SHARE}/made DEPENDS plait COMMENT "man pages and shell completion")
  add_custom_target(manuals ALL DEPENDS ${PLAIT_SHARE}/made)
  add_dependencies(installed manuals)
  install(DIRECTORY ${PLAIT_SHARE}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
  foreach(folder bash-completion zsh fish)
    install(DIRECTORY ${PLAIT_SHARE}/${folder} DESTINATION ${CMAKE_INSTALL_DATADIR})
  endforeach()
endif()
