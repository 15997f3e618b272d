#!/bin/bash
# tier 2; rooms base
# Limits that others have set: on threads (ulimit -u, ulimit -v, pids.max) and on memory (control groups of either version). Each is
# one sentence that names the limit and a status, never an abort or a kill; what can be known before the start is refused there.
. "$SOURCE/tests/train/harness.sh" || exit 1
sanitized && export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # whose search for leaks needs a thread and ptrace
many='schedule.steps=6 run.threads=64 run.comm=local'

group='' # a control group of this test
drop_group() {
  [ -z "$group" ] || wait_for rmdir "$group" || echo "$group is left"
  group=''
}
trap 'drop_group; clean_up' EXIT

# make_group CONTROLLER FILE VALUE …: a control group with such limits, in $group; fails where none can be made here
make_group() {
  local controller=$1 parent
  shift
  for parent in /sys/fs/cgroup/$controller /sys/fs/cgroup; do
    [ -w "$parent/cgroup.procs" ] && mkdir "$parent/plait-test-$$" 2>/dev/null || continue
    group=$parent/plait-test-$$
    while [ $# -gt 1 ] && [ -e "$group/$1" ] && echo "$2" 2>/dev/null >"$group/$1"; do shift 2; done
    [ $# -eq 0 ] && return
    drop_group
  done
  return 1
}
# ./inside COMMAND…: the command as a process of the group
cat >inside <<'SCRIPT'
#!/bin/bash
echo $$ >"$group/cgroup.procs" && exec "$@"
SCRIPT
chmod +x inside
export group

# ---- threads: an address space that has no room for their stacks ----

if ! sanitized; then # a sanitizer's shadow memory does not fit into any
  # shellcheck disable=SC2086
  (failures=0
    ulimit -S -s 65536 && ulimit -v 1000000 || exit 1
    refuse 1 "^plait train: rank [01]: thread [0-9]+ of 32 cannot be started: .*; limits here: .*ulimit -v is 1.02 GB; take fewer" "$PLAIT" train recipe.yaml $many run.dir=space
    refuse 1 "^plait tokenize: thread [0-9]+ of 64 cannot be started: .*ulimit -v is 1.02 GB" "$PLAIT" tokenize --threads 64 --tokenizer tokenizer.json --out few text-00.txt
    refuse 1 "^plait tokenize: thread [0-9]+ of 64 cannot be started: .*ulimit -v is 1.02 GB" "$PLAIT" tokenize --threads 64 --train --vocab-size 300 --out few.json text-00.txt
    finish) || fail "an address space that is limited"
  [ ! -e few.bin ] && [ ! -e few.json ] || fail "a tokenize that has failed leaves files"
fi

# ---- threads: as a user that may have a few ----

user=$((300000 + $$)) # nobody else's processes count
# shellcheck disable=SC2086 # words on purpose
if [ "$(id -u)" = 0 ] && setpriv --reuid=$user --regid=$user --clear-groups "$PLAIT" --version >/dev/null 2>&1; then
  chmod -R a+rwX "$work"
  limited="setpriv --reuid=$user --regid=$user --clear-groups prlimit" # --nproc=N COMMAND…
  refuse 1 '^plait train: rank [01]: thread [0-9]+ of 32 cannot be started: .*; limits here: ulimit -u allows this user 10 threads' $limited --nproc=10 "$PLAIT" train recipe.yaml $many run.dir=user
  refuse 1 '^plait train: the thread of rank 1 of 2 cannot be started: .*ulimit -u allows this user 3 ' $limited --nproc=3 "$PLAIT" train recipe.yaml $many run.dir=user
  expect 0 'step +6/6' "$PLAIT" train recipe.yaml schedule.steps=6 run.dir=model
  refuse 1 "^plait eval: the loader's thread cannot be started: .*ulimit -u allows this user 1 " $limited --nproc=1 "$PLAIT" eval model --threads 1
  refuse 1 '^plait eval: thread [0-9] of 9 cannot be started' $limited --nproc=4 "$PLAIT" eval model --threads 9
  refuse 1 '^plait generate: thread [0-9] of 9 cannot be started' $limited --nproc=4 "$PLAIT" generate model --threads 9 --prompt ba
  expect 0 '^loss ' $limited --nproc=4 "$PLAIT" eval model --threads 2
else
  echo "not root, or another user cannot run $PLAIT: ulimit -u is not tested"
fi

# ---- threads: a control group ----

if make_group pids pids.max 12; then
  # shellcheck disable=SC2086
  refuse 1 "^plait train: rank [01]: thread [0-9]+ of 32 cannot be started: .*control group /plait-test-$$ allows 12 threads" ./inside "$PLAIT" train recipe.yaml $many run.dir=group
  expect 0 'step +6/6' ./inside "$PLAIT" train recipe.yaml schedule.steps=6 run.threads=2 run.dir=group-few
  drop_group
else
  echo "no control group for threads can be made here: not tested"
fi

# ---- memory: a control group that allows less than the plan ----

sed 's/"n_embd": 32/"n_embd": 1024/; s/"n_layer": 2/"n_layer": 8/' model.json >large.json
sanitized && allowed=1500000000 || allowed=400000000
if make_group memory memory.limit_in_bytes $allowed || make_group memory memory.max $allowed; then
  refuse 1 "^plait train: the ranks of this machine need [0-9.]+ GB of memory, but only [0-9.]+ [GM]B are available under the limit of [0-9.]+ [GM]B of control group /plait-test-$$ .plait plan shows" \
    ./inside "$PLAIT" train recipe.yaml model.config=large.json run.dir=large
  [ ! -e large/metrics.jsonl ] || fail "a run that was refused has begun"
  expect 0 'step +6/6' ./inside "$PLAIT" train recipe.yaml schedule.steps=6 run.dir=small
  expect 0 "^!!  memory .*control group \\(container\\) allows $([ $allowed = 400000000 ] && echo '400 MB' || echo '1.50 GB')" ./inside "$PLAIT" doctor
  # what the group has read of files does not count as used: the kernel gives it back
  if [ "$(stat -f -c %T .)" != tmpfs ]; then
    ./inside dd if=/dev/zero of=cached bs=1M count=$((allowed / 2000000)) conv=fsync 2>/dev/null
    for ((pass = 0; pass < 3; pass++)); do ./inside cat cached >/dev/null; done
    left=$(./inside "$PLAIT" doctor | sed -n 's/^ok  memory  *\([0-9]*\) MB available of .*/\1/p;s/^ok  memory  *\([0-9]\)\.\([0-9]*\) GB available of .*/\1\20/p')
    [ "${left:-0}" -gt $((allowed / 1250000)) ] || fail "with a file of $((allowed / 2000000)) MB in the cache only $left MB of $allowed bytes are available"
  fi
  drop_group
else
  echo "no control group for memory can be made here: not tested"
fi
finish
