#!/bin/bash
# tier 2
# Configuring where an MPI is half installed, as Debian's openmpi-bin is without libopenmpi-dev: AUTO leaves it out and says so, ON
# refuses with a sentence. SOURCE: the repository.
set -u
command -v cmake >/dev/null || { echo "no cmake here: not tested"; exit 0; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# An mpicc that names folders which are not there, and a launcher; those of the machine come after them.
mkdir "$work/bin"
cat >"$work/bin/mpicc" <<'SCRIPT'
#!/bin/sh
flags="-I/nowhere/include -I/nowhere/include/openmpi"
case "$*" in
*-showme:compile*) echo "$flags" ;;
*-showme:link* | *-showme:libdirs* | *-showme:libs*) echo "-L/nowhere/lib -lmpi" ;;
*-show*) echo "cc $flags -L/nowhere/lib -lmpi" ;;
*) echo "mpi.h: No such file or directory" >&2; exit 1 ;;
esac
SCRIPT
printf '#!/bin/sh\necho "mpirun (Open MPI) 4.1.4"\n' >"$work/bin/mpirun"
cp "$work/bin/mpirun" "$work/bin/mpiexec"
chmod +x "$work"/bin/*

# configure STATUS PATTERN OPTION…
configure() {
  local status=$1 pattern=$2 got
  shift 2
  PATH=$work/bin:$PATH cmake -S "$SOURCE" -B "$work/build" -DPLAIT_TESTS=OFF "$@" >"$work/log" 2>&1
  got=$?
  [ "$got" -eq "$status" ] && tr -s '\n ' ' ' <"$work/log" | grep -qE -e "$pattern" && return
  fail "$*: status $got, expected $status; expected to match: $pattern"
  cat "$work/log"
}

configure 0 "-- MPI: left out: $work/bin/mpicc cannot build a program, its headers or libraries are missing .Debian: libopenmpi-dev"
[ "$(grep -c 'MPI' "$work/log")" -eq 1 ] || fail "more than one line about MPI: $(grep MPI "$work/log")"
grep -q 'PLAIT_MPI=1' "$work/build/compile_commands.json" && fail "MPI is left out, but what is compiled has it"
configure 1 "PLAIT_MPI is ON, but no MPI can be used: $work/bin/mpicc cannot build a program.* See $work/build/mpi-probe.log" -DPLAIT_MPI=ON
configure 0 'Generating done' -DPLAIT_MPI=OFF
grep -q 'MPI' "$work/log" && fail "OFF says something about MPI: $(grep MPI "$work/log")"

# An MPI that is installed later is found without starting anew.
rm -r "$work/bin"
if mpicc --version >/dev/null 2>&1 && echo '#include <mpi.h>' | mpicc -fsyntax-only -x c - 2>/dev/null; then
  configure 0 '-- MPI: [^ ]*mpicc[^ ]*, MPI-' -DPLAIT_MPI=AUTO
  grep -q 'PLAIT_MPI=1' "$work/build/compile_commands.json" || fail "MPI is found, but what is compiled does not have it"
fi
[ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
