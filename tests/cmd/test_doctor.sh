#!/bin/bash
# tier 1; rooms device comm
# plait doctor: says all that it should, agrees with the system, survives an empty PATH, a wrong PLAIT_SIMD, no devices.
# PLAIT: the binary.
. "$SOURCE/tests/script.sh" || exit 1
export COLUMNS=300 # no line is broken

# expect PATTERN COMMAND…: status 0, nothing on stderr, and an extended regular expression in the output
expect() {
  local pattern=$1 output
  shift
  output=$("$@" 2>"$work/errors") || fail "$*: status $?"
  grep -qE -e "$pattern" <<<"$output" || fail "$*: no line matches $pattern in
$output"
  [ -s "$work/errors" ] && fail "$*: $(cat "$work/errors")"
}

for topic in cores SIMD memory 'huge pages' GPU MPI compiler libyaml jansson pcre2 zlib libzstd clang python3; do
  expect "^(ok|--|!!)  $topic  " "$PLAIT" doctor
done
expect '^plait [0-9.]+ on ' "$PLAIT" doctor
expect "^ok  cores +$(nproc) of " "$PLAIT" doctor
expect "^ok  cores +1 of " taskset -c "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" "$PLAIT" doctor
expect "^ok  libyaml +$(pkg-config --modversion yaml-0.1) " "$PLAIT" doctor
expect "^ok  jansson +$(pkg-config --modversion jansson | sed 's/\.0$//')" "$PLAIT" doctor
expect "^ok  pcre2 +$(pkg-config --modversion libpcre2-8) " "$PLAIT" doctor
expect "^ok  zlib +$(pkg-config --modversion zlib) " "$PLAIT" doctor
expect "^ok  libzstd +$(pkg-config --modversion libzstd) " "$PLAIT" doctor
expect '^ok  SIMD +kernels use portable, because PLAIT_SIMD is portable' env PLAIT_SIMD=portable "$PLAIT" doctor
expect '^!!  SIMD +PLAIT_SIMD is "avx3"; allowed: reference, portable, avx2, avx512, avx512_bf16 or amx' env PLAIT_SIMD=avx3 "$PLAIT" doctor

# Built without MPI, where a launcher is: whose headers and libraries are missing. (.ci/run has such a build.)
if "$PLAIT" doctor | grep -q '^--  MPI  *plait was built with no MPI'; then
  mkdir "$work/bin"
  while IFS=$'\t' read -r version package; do
    printf '#!/bin/sh\necho "%s"\n' "$version" >"$work/bin/mpirun"
    chmod +x "$work/bin/mpirun"
    expect "^ +to do: apt-get install $package, then make" env PATH="$work/bin:/usr/bin:/bin" "$PLAIT" doctor
  done <<END
mpirun (Open MPI) 4.1.4	libopenmpi-dev
HYDRA build details:	libmpich-dev
another one	libopenmpi-dev openmpi-bin .or libmpich-dev mpich.
END
fi

# every missing part says what it is good for, and every advice stands below a part
expect '^--  clang +not on PATH' env PATH=/nowhere "$PLAIT" doctor
expect '^ +to do: apt-get install clang' env PATH=/nowhere "$PLAIT" doctor
PATH=/nowhere "$PLAIT" doctor | awk '
  /^--/ { if (open) { print "no advice for: " open; bad = 1 } open = $0; next }
  /^ +(good for|to do): ./ { if ($1 == "good") open = ""; next }
  /^$|^ok: fine|^This machine$|^This build of plait$|^For work on plait itself$/ { next }
  /^(ok|!!|plait|$)/ { if (open) { print "no advice for: " open; bad = 1 } open = ""; next }
  { print "strange line: " $0; bad = 1 }
  END { exit bad || open != "" }' || fail "a missing part without advice"
(cd "$work" && env -i "$PLAIT" doctor >/dev/null) || fail "an empty environment"
"$PLAIT" doctor word >/dev/null 2>&1 && fail "plait doctor takes no words"

finish
