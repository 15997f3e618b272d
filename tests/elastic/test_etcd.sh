#!/bin/bash
# tier 3; rooms comm train; numbers
# Machines that meet in etcd: they train, lose a worker and a machine, etcd restarts in the middle; what is left in it; TLS, users, what is
# refused. Starts an etcd of its own. Needs libcurl and etcd-server.
. "$SOURCE/tests/elastic/environment.sh" || exit 1
. "$SOURCE/tests/elastic/machines.sh" || exit 1
unset ETCDCTL_USER ETCDCTL_PASSWORD ETCDCTL_CACERT ETCDCTL_CERT ETCDCTL_KEY ETCD_NAME

if "$PLAIT" launch --nnodes 2 --rdzv etcd://127.0.0.1:1 --rdzv-timeout 1 recipe.yaml 2>&1 | grep -q 'this plait was built without libcurl'; then
  echo "skipped: a build without libcurl"
  exit 77
fi
command -v etcd >/dev/null || { echo "skipped: no etcd (Debian: etcd-server)"; exit 77; }

# start_etcd NAME SCHEME WORD…: on $at; again with the same name: with the same data
start_etcd() {
  local name=$1 scheme=$2
  shift 2
  : >"$name.log"
  etcd --data-dir "$name" --listen-client-urls "$scheme://$at" --advertise-client-urls "$scheme://$at" --listen-peer-urls "http://$peer" \
    --initial-advertise-peer-urls "http://$peer" --initial-cluster "default=http://$peer" --bcrypt-cost 4 "$@" >"$name.log" 2>&1 &
  pid[etcd]=$!
  wait_for grep -q 'serving .*client' "$name.log" || { tail -5 "$name.log"; die "etcd does not start"; }
}
stop_etcd() {
  { kill -KILL "${pid[etcd]}"; wait "${pid[etcd]}"; } 2>/dev/null
  unset "pid[etcd]"
}
# ask PATH JSON …: what etcd answers
ask() {
  python3 - "http://$at" "$@" <<'end'
import sys, urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for path, body in zip(sys.argv[2::2], sys.argv[3::2]):
    try: print(opener.open(sys.argv[1] + path, body.encode(), timeout=30).read().decode())
    except urllib.error.HTTPError as e: print(e.read().decode())
end
}
is_empty() { ! ask /v3/kv/range '{"key":"AA==","range_end":"AA==","keys_only":true}' | grep -q kvs; }
# new_job NAME: as job of machines.sh, with etcd's pid and in it
new_job() {
  local etcd=${pid[etcd]-}
  job "$1"
  store=etcd://$at
  [ -z "$etcd" ] || pid[etcd]=$etcd
}

port=$((port + 3)) at=127.0.0.1:$port peer=127.0.0.1:$((port + 1))
long='schedule.steps=150 checkpoint.every=5'
# shellcheck disable=SC2086 # words on purpose
"$PLAIT" train recipe.yaml $long run.dir=whole >log 2>&1 || { cat log; die "the unbroken run"; }
start_etcd data http

# ---- the run of threads; a worker is killed; etcd stands still and comes again ----

new_job two
for name in a b; do machine $name --nnodes 2 --max-restarts 1 recipe.yaml $long run.dir=two; done
at_step two 20
kill -KILL "$(worker "$id" 1)"
wait_for grep -q 'rank 1 on .* was killed by SIGKILL.*; starting all 2 workers again (restart 1 of 1)' a.log b.log || { grep -h '^plait' a.log b.log; die "no word of rank 1"; }
at_step two 50
stop_etcd
wait_for grep -q 'plait launch: etcd at etcd://.* does not answer' a.log || { cat a.log; die "nobody notices that etcd is gone"; }
start_etcd data http
all_end 0 a b
same_run whole two
[ "$(tail -1 two/launch.jsonl)" = '{"rounds": 2, "restarts": 1, "status": 0}' ] || fail "launch.jsonl: $(cat two/launch.jsonl)"
[ "$(cut -d ' ' -f 2 two/rendezvous-*)" = -2 ] || fail "the lease of run.dir does not say that the job has ended: $(cat two/rendezvous-*)"
is_empty || fail "keys are left in etcd: $(ask /v3/kv/range '{"key":"AA==","range_end":"AA=="}')"

# ---- etcd loses all its data: the machines remind it ----

new_job reminded
for name in a b; do machine $name --nnodes 2 recipe.yaml $long run.dir=reminded; done
at_step reminded 20
stop_etcd
start_etcd others http
all_end 0 a b
same_run whole reminded
[ "$(tail -1 reminded/launch.jsonl)" = '{"rounds": 1, "restarts": 0, "status": 0}' ] || fail "launch.jsonl: $(cat reminded/launch.jsonl)"
is_empty || fail "keys are left in etcd: $(ask /v3/kv/range '{"key":"AA==","range_end":"AA=="}')"

# ---- a machine is killed, and it is the one that holds the lease of run.dir; a later one joins ----

new_job lost
for name in a b; do machine $name --nnodes 1:3 --silence 2 recipe.yaml $long schedule.steps=100000 mesh.dp=auto run.dir=lost; done
at_step lost 10
holder=$(cut -d ' ' -f 3 lost/rendezvous-1)
other=a stay=b
[ "$holder" = "${pid[a]}" ] || other=b stay=a
[ "$holder" = "${pid[$other]}" ] || fail "nobody holds the lease of run.dir: $(cat lost/rendezvous-1)"
kill -KILL "$holder"
all_end 137 $other
wait_for grep -q '"round": 1,' lost/launch.jsonl || { tail -n 5 a.log b.log; die "no round without $other"; }
wait_for test -e lost/rendezvous-2 || die "nobody takes over the lease of run.dir"
machine c --nnodes 1:3 --silence 2 recipe.yaml $long schedule.steps=100000 mesh.dp=auto run.dir=lost
wait_for grep -q '"round": 2,' lost/launch.jsonl || { tail -n 5 a.log b.log c.log; die "c does not join"; }
kill -TERM "${pid[$stay]}"
all_end 143 $stay
wait_for grep -q '"round": 3,' lost/launch.jsonl || { tail -n 5 c.log; die "no round without $stay"; }
wait_for test -e lost/rendezvous-3 || die "nobody takes over the lease of run.dir from $stay"

# Another job of the same run.dir, and other keys, are refused. Where all are killed, nothing is left soon after.
refuse 2 'run.dir .*lost is in use by another job, whose store is at etcd://' timeout -k 2 30 "$PLAIT" launch --nnodes 1:2 --rdzv "$store" --rdzv-id another recipe.yaml run.dir=lost
refuse 2 "the job at $store runs something else: .* here and .* there" timeout -k 2 20 "$PLAIT" launch --nnodes 1:2 --rdzv "$store" --rdzv-id "$id" recipe.yaml run.dir=lost
kill -KILL "${pid[c]}"
all_end 137 c
wait_for is_empty || fail "keys are left in etcd: $(ask /v3/kv/range '{"key":"AA==","range_end":"AA=="}')"
machine d --nnodes 1:2 recipe.yaml schedule.steps=20 mesh.dp=auto run.dir=later
all_end 0 d
[ "$(last_step later)" = 20 ] || fail "a later job of the same id ends at step $(last_step later)"

# ---- users ----

open=$(printf 'plait/' | base64) end=$(printf 'plait0' | base64)
ask /v3/auth/user/add '{"name":"root","password":"toor"}' \
  /v3/auth/user/add '{"name":"run","password":"p@ss:word"}' \
  /v3/auth/user/add '{"name":"guest","password":"guest"}' \
  /v3/auth/role/add '{"name":"plait"}' \
  /v3/auth/role/grant "{\"name\":\"plait\",\"perm\":{\"permType\":\"READWRITE\",\"key\":\"$open\",\"range_end\":\"$end\"}}" \
  /v3/auth/user/grant '{"user":"root","role":"root"}' \
  /v3/auth/user/grant '{"user":"run","role":"plait"}' \
  /v3/auth/enable '{}' >answer
grep error answer && die "the users are not made"
new_job users
words='launch --nnodes 2 recipe.yaml schedule.steps=40 run.dir=users'
# shellcheck disable=SC2086
{
  refuse 2 "etcd at $store refuses who has no user .set ETCDCTL_USER=USER:PASSWORD.: etcdserver: user name is empty" "$PLAIT" $words --rdzv "$store"
  refuse 2 "etcd at $store refuses this user .ETCDCTL_USER, or USER:PASSWORD@ in --rdzv.: etcdserver: authentication failed" env ETCDCTL_USER=run:secret "$PLAIT" $words --rdzv "$store"
  refuse 2 "etcd at $store refuses this user .*: etcdserver: authentication failed" "$PLAIT" $words --rdzv "etcd://run:secret@$at"
  grep -q secret output && fail "the password is printed"
  refuse 2 "etcd at $store refuses this user .*: etcdserver: permission denied" env ETCDCTL_USER=guest ETCDCTL_PASSWORD=guest "$PLAIT" $words --rdzv "$store"
}
store=etcd://run:p%40ss%3Aword@$at
machine a --nnodes 2 recipe.yaml schedule.steps=120 run.dir=users
wait_for grep -q 'waiting for machines' a.log || { cat a.log; die "it does not wait"; }
tr '\0' ' ' <"/proc/${pid[a]}/cmdline" | grep -q 'p%40' && fail "the list of processes shows the password: $(tr '\0' ' ' <"/proc/${pid[a]}/cmdline")"
store=etcd://$at
ETCDCTL_USER=run:p@ss:word machine b --nnodes 2 recipe.yaml schedule.steps=120 run.dir=users
at_step users 20
stop_etcd # which forgets who has shown a password
start_etcd others http
all_end 0 a b
grep -h 'word' a.log b.log && fail "the password is printed"
stop_etcd

# ---- TLS, with certificates on both sides ----

if command -v openssl >/dev/null; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem 2>>log
  for name in server client; do
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=$name -keyout $name.key -out $name.csr 2>>log
    openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out $name.pem \
      -extfile <(printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n') 2>>log || { cat log; die "no certificate"; }
  done
  start_etcd safe https --cert-file server.pem --key-file server.key --trusted-ca-file ca.pem --client-cert-auth
  new_job tls
  store=etcds://$at words='launch --nnodes 2 --rdzv-timeout 1 recipe.yaml schedule.steps=40 run.dir=tls'
  # shellcheck disable=SC2086
  {
    expect 1 "etcd at etcd://$at does not answer .*; if it talks TLS, say etcds://. within 1 s" "$PLAIT" $words --rdzv "etcd://$at"
    refuse 2 "TLS with etcd at $store: .*certificate" "$PLAIT" $words --rdzv "$store"
    refuse 2 'ETCDCTL_CACERT is nothing.pem: No such file' env ETCDCTL_CACERT=nothing.pem "$PLAIT" $words --rdzv "$store"
    expect 1 "etcd at $store does not answer .*certificate.* within 1 s; is etcd running there" env ETCDCTL_CACERT=ca.pem "$PLAIT" $words --rdzv "$store"
  }
  export ETCDCTL_CACERT=ca.pem ETCDCTL_CERT=client.pem ETCDCTL_KEY=client.key
  for name in a b; do machine $name --nnodes 2 recipe.yaml schedule.steps=40 run.dir=tls; done
  all_end 0 a b
  unset ETCDCTL_CACERT ETCDCTL_CERT ETCDCTL_KEY
  stop_etcd
fi

# ---- what is refused ----

expect 1 "^plait launch: etcd at etcd://$at,127.0.0.1:1 does not answer .* within 1 s; is etcd running there" "$PLAIT" launch --nnodes 2 --rdzv "etcd://$at,127.0.0.1:1" --rdzv-timeout 1 recipe.yaml run.dir=nobody
refuse 2 '"host:port" is not HOST:PORT, as in etcd://hostA:2379,hostB:2379' "$PLAIT" launch --nnodes 2 --rdzv etcd://host:port recipe.yaml
refuse 2 'what goes to etcd at 192.0.2.7 would be neither encrypted nor authenticated; say etcds:// if it talks TLS, or' "$PLAIT" launch --nnodes 2 --rdzv etcd://192.0.2.7 recipe.yaml
python3 -c 'import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self): self.send_error(404)
s = http.server.HTTPServer(("127.0.0.1", 0), Handler); print(s.server_address[1], flush=True); s.serve_forever()' >other.port 2>/dev/null &
running=$!
wait_for test -s other.port
refuse 2 'is not etcd 3.4 or later with its JSON gateway .HTTP status 404' "$PLAIT" launch --nnodes 2 --rdzv "etcd://127.0.0.1:$(cat other.port)" recipe.yaml
finish
