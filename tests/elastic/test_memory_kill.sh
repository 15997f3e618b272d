#!/bin/bash
# tier 3
# A worker that the system kills for memory: plait launch says so, and which control group was full. In a group of this test's own with
# a limit, where one can be made; else in a mount namespace in which the kernel's count of such kills is a file of this test.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
[ "$(id -u)" = 0 ] || { echo "skipped: a control group needs root"; exit 77; }
killed='^plait launch: rank 1 on .* was killed by SIGKILL, killed for memory \(its control group'

# A control group with 64 MiB, in version 2 or 1 of the hierarchy; sets `group`.
make_group() {
  local top
  for top in /sys/fs/cgroup /sys/fs/cgroup/memory; do
    group=$top/plait-test-$$
    mkdir "$group" 2>/dev/null || continue
    if [ -w "$group/memory.max" ]; then
      echo 64M >"$group/memory.max" && { echo 0 >"$group/memory.swap.max"; true; } 2>/dev/null && return
    elif [ -w "$group/memory.limit_in_bytes" ]; then
      echo 64M >"$group/memory.limit_in_bytes" && grep -q '^oom_kill ' "$group/memory.oom_control" && return
    fi
    rmdir "$group"
  done
  return 1
}

if make_group; then
  # shellcheck disable=SC2016
  expect 137 "$killed /plait-test-$$ has reached its limit\\)" bash -c 'echo $$ >"$1/cgroup.procs" && exec "$2" launch --nproc-per-node 2 -- bash -c "[ \$RANK = 1 ] && exec tail /dev/zero; sleep 100"' - "$group" "$PLAIT"
  for ((try = 0; try < 100; try++)); do rmdir "$group" 2>/dev/null && break; sleep 0.05; done
  finish
fi

echo "no control group with a limit can be made here: the kernel's count is a file of this test"
if [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ]; then where=/sys/fs/cgroup file=memory.events; else where=/sys/fs/cgroup/memory file=memory.oom_control; fi
unshare -m mount -t tmpfs none "$where" 2>/dev/null || { echo "skipped: nor can a file take its place"; exit 77; }
# in_namespace COUNT: with plait launch, whose rank 1 is killed after the count has become COUNT
in_namespace() {
  # shellcheck disable=SC2016
  unshare -m bash -c 'mount -t tmpfs none "$1" && echo "oom_kill 3" >"$1/$2" && exec "$3" launch --nproc-per-node 2 -- bash -c "[ \$RANK = 1 ] || sleep 100; echo oom_kill $4 >$1/$2; kill -KILL \$\$"' - "$where" "$file" "$PLAIT" "$1"
}
export -f in_namespace
export where file PLAIT
expect 137 "$killed / has reached its limit\\)" bash -c 'in_namespace 4'
expect 137 '^plait launch: rank 1 on .* was killed by SIGKILL$' bash -c 'in_namespace 3'
finish
