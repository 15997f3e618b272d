# What the scripts of this folder share. Sourced by bash. MPIRUN: the launcher, empty where there is
# none, and what needs it is skipped; FOLDER: that of the test programs.
case $0 in
*/mpi_*) [ -x "${MPIRUN-}" ] || { echo "skipped: there is no mpirun here (on Debian openmpi-bin), or plait was built without MPI"; exit 77; } ;;
esac
# Open MPI refuses root, and more ranks than cores, unless told; other launchers do not read these.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
export ASAN_OPTIONS=detect_leaks=0 # MPI libraries keep what they have

# ranks N COMMAND…: N processes, for at most six minutes times PLAIT_PATIENCE
ranks() {
  local n=$1
  shift
  timeout -k 5 $((360 * ${PLAIT_PATIENCE:-1})) "$MPIRUN" -n "$n" "$@"
}
