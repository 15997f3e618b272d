#!/bin/bash
# tier 2; rooms comm machine train
# plan: auto and run.cluster where ranks are processes: rank 0 alone reads and searches, and the others take its plan and its cut into
# stages, whatever their own files say.
. "$SOURCE/tests/train/harness.sh" || exit 1
. "$SOURCE/tests/net/environment.sh" || exit 1
"$PLAIT" doctor 2>/dev/null | grep -q '^ok  UCX' || exit 77
sed -i '/^mesh:/d; /^parallel:/d' recipe.yaml
keys='precision=fp32 batch.micro=2 checkpoint.every=0 eval.every=0 schedule.warmup=2 schedule.steps=3 run.comm=net run.cluster=here'

# Two machines whose files of one name differ: here a pipeline is fast, as nothing else is; there the file is damaged, or tells of
# a device with other seconds.
mkdir mine theirs
cat >files <<'END'
#!/bin/bash
# as rank RANK, with its own cluster files
[ "$RANK" = 0 ] || export PLAIT_CLUSTERS=$PWD/theirs HOME= XDG_CACHE_HOME=
exec "$@"
END
chmod +x files
export PLAIT_CLUSTERS=$PWD/mine
sed 's/count: 8/count: 2/' "$SOURCE/clusters/h200-node.yaml" >mine/here.yaml
echo 'name: [' >theirs/here.yaml

# shellcheck disable=SC2086 # words on purpose
{
  ranks 2 "$PWD/files" "$PLAIT" train recipe.yaml $keys plan=auto batch.micro=null run.dir=auto >log 2>&1 || { cat log; fail "plan: auto"; }
  [ "$(grep -c '^plan: auto chose .* plans for 2 ranks of ' log)" -eq 1 ] || { cat log; fail "the plan is not said once"; }
  grep -q 'step *3/3' log || { cat log; fail "the run does not end"; }
  grep -q '^plan: fixed' auto/recipe.yaml || fail "the run's recipe plans again"

  # what rank 0 lacks is said once, and ends all
  ranks 2 "$PWD/files" "$PLAIT" train recipe.yaml $keys run.cluster=nowhere plan=auto batch.micro=null run.dir=none >log 2>&1 && fail "a cluster that is not there"
  [ "$(grep -c '^plait' log)" -eq 1 ] && grep -q 'run.cluster: "nowhere" is neither a file nor a cluster' log || { cat log; fail "not one sentence"; }

  # stages: rank 1 has no file that it could read, and the same stages
  ranks 2 "$PWD/files" "$PLAIT" train recipe.yaml $keys mesh.pp=2 mesh.dp=1 run.dir=stages >log 2>&1 || { cat log; fail "stages by rank 0's file"; }
  ranks 2 "$PWD/files" "$PLAIT" train recipe.yaml $keys mesh.pp=2 mesh.dp=1 run.cluster=nowhere run.dir=none >log 2>&1 && fail "stages by a file that is not there"
  [ "$(grep -c '^plait' log)" -eq 1 ] && grep -q 'run.cluster: "nowhere" is neither' log || { cat log; fail "not one sentence of stages"; }
}
finish
