# cpack --config build/cpu/CPackConfig.cmake writes a Debian package of a build of the preset cpu. If
# SOURCE_DATE_EPOCH is set, the same build gives the same bytes.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The Lockstep authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training engine for GPT-style language models")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # dpkg-shlibdeps lists the libraries of the binary
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
include(CPack)
