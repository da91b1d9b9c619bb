# cmake --install build/<preset> --prefix DIR installs a tree without paths of the build host.
install(TARGETS lockstep)
install(DIRECTORY configs DESTINATION share/lockstep)
install(DIRECTORY launch/cluster DESTINATION share/lockstep USE_SOURCE_PERMISSIONS)
install(DIRECTORY docs DESTINATION share/doc/lockstep)
install(FILES LICENSE README.md ARCHITECTURE.md CHANGELOG.md DESTINATION share/doc/lockstep OPTIONAL)
# bash-completion loads it at the first Tab after `lockstep`.
file(WRITE ${CMAKE_BINARY_DIR}/generated/lockstep.bash "source <(lockstep completion bash)\n")
install(FILES ${CMAKE_BINARY_DIR}/generated/lockstep.bash
  DESTINATION share/bash-completion/completions RENAME lockstep)
