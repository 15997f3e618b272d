#!/bin/bash
# tier 2; rooms net train; numbers
# Many connections that say nothing at the ports of supervisors that may open few files: the run trains on, machines still join, no
# restart, and what was closed is told.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/elastic/machines.sh" || exit 1

needs_ucx
long='schedule.steps=80 checkpoint.every=20'
# shellcheck disable=SC2086 # words on purpose
"$PLAIT" train recipe.yaml $long run.dir=whole >log 2>&1 || { cat log; die "the unbroken run"; }

# strangers PORT COUNT: opens this number of silent connections, and each again when it is closed; "there" when all have been opened
strangers() {
  python3 - "$1" "$2" <<'P' &
import resource, select, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
there, all = select.epoll(), {}
def come():
    s = socket.socket()
    s.settimeout(10)
    s.connect(("127.0.0.1", port))
    all[s.fileno()] = s
    there.register(s, select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR)
try:
    for i in range(count): come()
    print("there", file=open("strangers.%d" % port, "w"), flush=True)
    while True:
        for fd, event in there.poll():
            there.unregister(fd)
            all.pop(fd).close()
            come()
except OSError: # the port is closed
    pass
P
  running=$!
}

printf '#!/bin/bash\nulimit -n "$FILES"\nexec "%s" "$@"\n' "$PLAIT" >few
chmod +x few
PLAIT=$work/few

for FILES in 1024 512; do # a limit on open files of each machine; 1,500 strangers are at the store before the second one comes
  export FILES
  job "few$FILES"
  rm -f "strangers.$port"
  # shellcheck disable=SC2086
  machine a --nnodes 2 recipe.yaml $long run.dir="few$FILES"
  wait_for serves a || { cat a.log; die "the first machine does not serve the store"; }
  strangers "$port" 1500
  wait_for test -e "strangers.$port" || { cat a.log; die "strangers do not come"; }
  # shellcheck disable=SC2086
  machine b --nnodes 2 recipe.yaml $long run.dir="few$FILES"
  all_end 0 a b
  wait "$running" || fail "the strangers"
  running=''
  same_run whole "few$FILES"
  [ "$(tail -1 "few$FILES/launch.jsonl")" = '{"rounds": 1, "restarts": 0, "status": 0}' ] || fail "launch.jsonl: $(cat "few$FILES/launch.jsonl")"
  grep -q "^plait launch: the store at 127.0.0.1:$port has closed a connection from 127.0.0.1: there were too many that had not said who they are$" a.log ||
    fail "nothing says that connections were closed: $(grep '^plait' a.log)"
  grep -qE "^plait launch: the store at 127.0.0.1:$port has closed ([0-9]+ connections? silent for too long, )?[0-9]+ connections since there were too many$" a.log ||
    fail "nothing says how many connections were closed: $(grep '^plait' a.log)"
  [ "$(grep -c '^plait launch: the store at' a.log)" -le 3 ] || fail "too many lines: $(grep '^plait launch: the store' a.log)"
done
finish
