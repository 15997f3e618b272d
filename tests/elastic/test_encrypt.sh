#!/bin/bash
# tier 2; rooms comm net cmd
# plait launch --encrypt: it needs a secret of the user's, and what cannot encrypt refuses it in one sentence, before a step is done.
# On one machine messages go through memory, and it changes nothing. Needs UCX and GnuTLS.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
needs_ucx
"$PLAIT" launch --make-secret key || die "--make-secret"

# refused STATUS WORDS COMMAND…
refused() {
  local status=$1 words=$2
  shift 2
  "$@" >log 2>&1
  [ $? -eq "$status" ] || { fail "$*: another status"; cat log; }
  grep -q -e "$words" log || fail "$*: $(cat log)"
}
none='there is no secret to encrypt with'
refused 2 "^plait launch: --encrypt: $none; give --secret FILE, too" "$PLAIT" launch --encrypt --nproc-per-node 2 recipe.yaml run.dir=none
refused 2 "^plait launch: PLAIT_ENCRYPT is 1, but $none" env PLAIT_ENCRYPT=1 "$PLAIT" launch --nproc-per-node 2 recipe.yaml run.dir=none
refused 2 'PLAIT_ENCRYPT is "on"; it must be 1 or 0' env PLAIT_ENCRYPT=on "$PLAIT" launch --nproc-per-node 2 recipe.yaml run.dir=none
refused 2 "^plait slurm: --encrypt: $none" "$PLAIT" slurm recipe.yaml --nodes 2 --insecure --encrypt --time 5
[ ! -e none ] || fail "something has started without a secret"
"$PLAIT" slurm recipe.yaml --nodes 2 --secret key --encrypt --time 5 --out job.sh >log 2>&1 && grep -q -e ' --encrypt' job.sh || fail "slurm: $(cat log)"

"$PLAIT" launch --encrypt --secret key --nproc-per-node 2 recipe.yaml schedule.steps=2 schedule.warmup=1 run.dir=one >log 2>&1 ||
  { grep -q 'without GnuTLS' log && { echo "skipped: a build without GnuTLS"; exit 77; }; fail "one machine: $(cat log)"; }

# Ranks that do not share memory, as on several machines: UCX carries what they say.
if unshare --ipc true 2>/dev/null; then
  refused 2 '\-\-encrypt (PLAIT_ENCRYPT is 1): UCX carries what ranks of several machines say, and does not encrypt it' \
    "$PLAIT" launch --encrypt --secret key --nproc-per-node 2 -- unshare --ipc "$PLAIT" train recipe.yaml run.comm=net run.dir=apart mesh.dp=2
  ! grep -qs '"loss"' apart/metrics.jsonl || fail "steps were done in clear"
else
  echo "not tried, as only root may: unshare --ipc"
fi
finish
