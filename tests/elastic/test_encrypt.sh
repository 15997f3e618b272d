#!/bin/bash
# tier 2; rooms comm net cmd
# plait launch --encrypt: it needs a secret of the user's, and what cannot encrypt refuses it in one sentence, before a step is done.
# Over TCP, and over Unix sockets of ranks that do not share memory, the run is that of threads to the bit (test_net_links.c looks at what
# goes over a connection). Needs GnuTLS.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
"$PLAIT" launch --make-secret key || die "--make-secret"

# refused STATUS WORDS COMMAND…
refused() {
  local status=$1 words=$2
  shift 2
  "$@" >log 2>&1
  [ $? -eq "$status" ] || { fail "$*: another status"; cat log; }
  grep -q -e "$words" log || fail "$*: $(cat log)"
}
none='needs a secret as its key'
refused 2 "^plait launch: --encrypt $none; give --secret FILE as well" "$PLAIT" launch --encrypt --nproc-per-node 2 recipe.yaml run.dir=none
refused 2 "^plait launch: PLAIT_ENCRYPT is 1, which $none" env PLAIT_ENCRYPT=1 "$PLAIT" launch --nproc-per-node 2 recipe.yaml run.dir=none
refused 2 'PLAIT_ENCRYPT is "on"; it must be 1 or 0' env PLAIT_ENCRYPT=on "$PLAIT" launch --nproc-per-node 2 recipe.yaml run.dir=none
refused 2 "^plait slurm: --encrypt $none" "$PLAIT" slurm recipe.yaml --nodes 2 --insecure --encrypt --time 5
[ ! -e none ] || fail "something has started without a secret"
"$PLAIT" slurm recipe.yaml --nodes 2 --secret key --encrypt --time 5 --out job.sh >log 2>&1 && grep -q -e ' --encrypt' job.sh || fail "slurm: $(cat log)"

short='schedule.steps=10 schedule.warmup=1'
# shellcheck disable=SC2086 # words on purpose
"$PLAIT" train recipe.yaml $short run.dir=threads >log 2>&1 || { cat log; die "the run of threads"; }
# run NAME COMMAND…
run() {
  local name=$1
  shift
  "$@" >log 2>&1 || { grep -q 'without GnuTLS' log && { echo "skipped: a build without GnuTLS"; exit 77; }; cat log; fail "$name"; return; }
  same_run threads "$name"
}
# shellcheck disable=SC2086
run memory "$PLAIT" launch --encrypt --secret key --nproc-per-node 2 recipe.yaml $short run.dir=memory
# shellcheck disable=SC2086
run tcp env PLAIT_WIRE=tcp "$PLAIT" launch --encrypt --secret key --nproc-per-node 2 recipe.yaml $short run.dir=tcp

# Ranks that do not share memory, as on several machines: Unix sockets; and UCX, which does not encrypt.
if unshare --ipc true 2>/dev/null; then
  # shellcheck disable=SC2086
  run apart "$PLAIT" launch --encrypt --secret key --nproc-per-node 2 -- unshare --ipc "$PLAIT" train recipe.yaml run.comm=net $short run.dir=apart
  if ! "$PLAIT" doctor | grep -q '^--  UCX  *plait was built without it'; then
    # shellcheck disable=SC2086
    refused 2 '\-\-encrypt (PLAIT_ENCRYPT is 1) and run.wire: ucx contradict each other, where ranks are on several machines' \
      "$PLAIT" launch --encrypt --secret key --nproc-per-node 2 -- unshare --ipc "$PLAIT" train recipe.yaml run.comm=net run.wire=ucx $short run.dir=clear
    ! grep -qs '"loss"' clear/metrics.jsonl || fail "steps were done in clear"
  fi
else
  echo "not tried, as only root may: unshare --ipc"
fi
finish
