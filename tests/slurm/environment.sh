# A small Slurm of this machine, for the scripts of this folder: munge, slurmctld and three slurmd in a folder of their own, with ports of
# their own. The nodes' names are addresses of the loopback interface, so that they resolve. Needs root and Debian's slurm-wlm and munge.
# Sourced by bash, after harness.sh.
slurm_folder=$work/slurm first_port=${SLURM_TEST_PORT:-16817} nodes=3
export SLURM_CONF=$slurm_folder/slurm.conf

# A file with the number of a daemon's process
slurm_end() {
  local file
  for file in "$slurm_folder"/node-*.pid "$slurm_folder/controller.pid" "$slurm_folder/munge.pid"; do
    [ -s "$file" ] && kill "$(cat "$file")" 2>/dev/null
  done
}

slurm_configure() {
  local i host
  host=$(hostname)
  cat <<END
ClusterName=plait
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$first_port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm_folder/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$slurm_folder/state
SlurmdSpoolDir=$slurm_folder/spool-%n
SlurmctldPidFile=$slurm_folder/controller.pid
SlurmdPidFile=$slurm_folder/node-%n.pid
SlurmctldLogFile=$slurm_folder/controller.log
SlurmdLogFile=$slurm_folder/node-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
SlurmdTimeout=10
MpiDefault=none
END
  for ((i = 1; i <= nodes; i++)); do
    echo "NodeName=127.0.0.$i NodeHostname=$host NodeAddr=127.0.0.$i Port=$((first_port + i)) CPUs=4 RealMemory=500"
  done
  echo "PartitionName=main Nodes=127.0.0.[1-$nodes] Default=YES MaxTime=INFINITE State=UP"
}

nodes_idle() { [ "$(sinfo -h -N -o '%T' | grep -cx idle)" -eq $nodes ]; }

slurm_begin() {
  local i
  mkdir -p "$slurm_folder/state"
  chmod 755 "$work" "$slurm_folder"
  (umask 077 && head -c 1024 /dev/urandom >"$slurm_folder/munge.key")
  munged --force --key-file "$slurm_folder/munge.key" --socket "$slurm_folder/munge.socket" --pid-file "$slurm_folder/munge.pid" \
    --log-file "$slurm_folder/munge.log" --seed-file "$slurm_folder/munge.seed" || die "munged does not start"
  slurm_configure >"$SLURM_CONF"
  slurmctld -c >"$slurm_folder/start.log" 2>&1 || { cat "$slurm_folder/start.log"; die "slurmctld does not start"; }
  for ((i = 1; i <= nodes; i++)); do
    mkdir -p "$slurm_folder/spool-127.0.0.$i"
    slurmd -N "127.0.0.$i" >"$slurm_folder/start.log" 2>&1 || { cat "$slurm_folder/start.log"; die "slurmd $i does not start"; }
  done
  wait_for nodes_idle || { sinfo; tail -5 "$slurm_folder"/*.log; die "the nodes are not idle"; }
}

# state JOB: PENDING, RUNNING …; "" when Slurm has forgotten it
state() { squeue -h -j "$1" -o %T -t all 2>/dev/null | head -1; }
is_state() { [ "$(state "$1")" = "$2" ]; }
has_ended() { case $(state "$1") in PENDING | RUNNING | COMPLETING | REQUEUED | '') false ;; esac; }
restarts() { scontrol show job "$1" | sed -n 's/.* Restarts=\([0-9]*\) .*/\1/p' | head -1; }
# A requeued job waits for the credential of its last start to expire; this one need not.
start_again() { scontrol update "JobId=$1" StartTime=now 2>/dev/null; }

# patiently SECONDS CONDITION…: as wait_for, for what takes its time
patiently() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.5
  done
}
