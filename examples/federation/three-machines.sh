#!/bin/sh
# Walks through docs/federation.md on one machine: a server and two sites in network namespaces of their own.
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
    for name in server a b; do ip netns delete "fed-$name" 2>/dev/null || true; done
}
jobs=
trap clean_up EXIT INT TERM

# Three machines: the server is a switch, too. Addresses exist inside the namespaces only.
for name in server a b; do
    ip netns add "fed-$name"
    ip -n "fed-$name" link set lo up
done
ip -n fed-server link add lan type bridge
ip -n fed-server address add 10.77.0.1/24 dev lan
ip -n fed-server link set lan up
number=2
for name in a b; do
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

"$python" "$here/make_site_data.py" data
on server $fedpurin federation keys keys --name 10.77.0.1 --sites 2
on server $fedpurin federation server "$here/config.toml" --keys keys --out run > server.log 2>&1 &
server=$!
jobs="$server"
until grep -q "listening on" server.log; do kill -0 "$server" || { cat server.log; exit 1; }; sleep 1; done

# The control interface is closed: from a site, everything but the fleet paths is 404.
on a "$python" "$here/knock.py" 10.77.0.1 8443 keys/site-0/ca.pem

on a $fedpurin federation client --keys keys/site-0 --data data/site-a.npz --state state-a > site-a.log 2>&1 &
a=$!
on b $fedpurin federation client --keys keys/site-1 --data data/site-b.npz --state state-b > site-b.log 2>&1 &
b=$!
jobs="$server $a $b"
for job in $jobs; do wait "$job" || { cat server.log site-a.log site-b.log; exit 1; }; done
jobs=
cat server.log site-a.log site-b.log
ls -l state-a/*/model.safetensors state-b/*/model.safetensors
