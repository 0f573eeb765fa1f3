#!/bin/sh
# Walks through docs/federation.md on one machine: a server and sites in network namespaces of their own. Two
# sites begin, a third joins, the first gets a new key, the second is revoked.
# Needs root, iproute2 and nginx:  sudo sh three-machines.sh FOLDER
# Nothing of it is reachable from outside, and everything but FOLDER is gone afterwards.
set -eu
folder=${1:?usage: three-machines.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
fedpurin=${FEDPURIN:-fedpurin}
mkdir -p "$folder"
cd "$folder"

clean_up() {
    trap - EXIT INT TERM
    kill $jobs 2>/dev/null || true
    wait 2>/dev/null || true
    for name in server a b c; do ip netns delete "fed-$name" 2>/dev/null || true; done
}
jobs=
trap clean_up EXIT INT TERM

# The machines: the server is a switch, too. Addresses exist inside the namespaces only.
for name in server a b c; do
    ip netns add "fed-$name"
    ip -n "fed-$name" link set lo up
done
ip -n fed-server link add lan type bridge
ip -n fed-server address add 10.77.0.1/24 dev lan
ip -n fed-server link set lan up
number=2
for name in a b c; do
    ip -n fed-server link add "to-$name" type veth peer name eth0 netns "fed-$name"
    ip -n fed-server link set "to-$name" master lan up
    ip -n "fed-$name" address add "10.77.0.$number/24" dev eth0
    ip -n "fed-$name" link set eth0 up
    number=$((number + 1))
done

on() { # on MACHINE COMMAND...
    machine=$1
    shift
    ip netns exec "fed-$machine" "$@"
}

start() { # start MACHINE LOG COMMAND...: in the background; $! is the command itself
    machine=$1
    log=$2
    shift 2
    ip netns exec "fed-$machine" "$@" > "$log" 2>&1 &
}

until_said() { # until_said FILE TEXT: the server must live until then
    until grep -qs "$2" "$1"; do kill -0 "$server" || { cat server.log; exit 1; }; sleep 0.2; done
}

"$python" "$here/make_site_data.py" data
on server $fedpurin federation keys keys --name 10.77.0.1 --sites 2
start server server.log $fedpurin federation server "$here/config.toml" --rounds 30 --seats 3 --keys keys --out run
server=$!
jobs="$server"
until_said server.log "listening on"

# The control interface is closed: from a site, everything but the fleet paths is 404.
on a "$python" "$here/knock.py" 10.77.0.1 8443 keys/site-0/ca.pem

start a site-a.log $fedpurin federation client --keys keys/site-0 --data data/site-a.npz --state state-a
a=$!
start b site-b.log $fedpurin federation client --keys keys/site-1 --data data/site-b.npz --state state-b
b=$!
jobs="$server $a $b"

until_said server.log "round 2: 2 uploads"
on server $fedpurin federation keys keys --add
start c site-c.log $fedpurin federation client --keys keys/site-2 --data data/site-c.npz --state state-c
c=$!
jobs="$server $a $b $c"
until_said server.log ": 3 uploads"
on server $fedpurin federation status run

# A new key for the first site: its old one is refused, with the new one it goes on with its state.
on server $fedpurin federation keys keys --new-key 0
if wait "$a"; then echo "the old key was accepted"; exit 1; fi
start a site-a2.log $fedpurin federation client --keys keys/site-0-2 --data data/site-a.npz --state state-a
a=$!
jobs="$server $a $b $c"
until_said site-a2.log ": trained"

on server $fedpurin federation keys keys --revoke 1
if wait "$b"; then echo "the revoked site ended as if nothing had happened"; exit 1; fi
on server $fedpurin federation status run

for job in $server $a $c; do wait "$job" || { cat server.log site-*.log; exit 1; }; done
jobs=
cat server.log site-a.log site-a2.log site-b.log site-c.log
on a $fedpurin federation audit state-a
on server $fedpurin federation status run
ls -l state-?/*/model.safetensors
