# For the emulated guest: rxe and xroce by turns at the two ends of one veth, va 10.88.0.1 and vb 10.88.0.2.
# rxe's devices are both in the initial namespace, since rxe receives only there; for xroce vb moves into netns B.
# Read by bench/src/duel/emulated.rs; a line that calls one of the functions follows.
set -e
stand() { [ "$(cat /tmp/stand 2>/dev/null)" = "$1" ]; }

pair() { # once
	rxe-pair 1500
	cp /mnt/share/xroce /tmp/xroce
	echo rxe >/tmp/stand
}
rxe() {
	! stand rxe || return 0
	ip -n B link set vb netns 1
	ip addr add 10.88.0.2/24 dev vb
	ip link set vb up
	ip neigh replace 10.88.0.1 lladdr 02:00:0a:58:00:01 dev vb nud permanent
	rdma link add rxea type rxe netdev va
	rdma link add rxeb type rxe netdev vb
	echo rxe >/tmp/stand
}
xroce() {
	! stand xroce || return 0
	rdma link del rxea
	rdma link del rxeb
	ip netns add B 2>/dev/null || true
	ip link set vb netns B
	ip -n B addr add 10.88.0.2/24 dev vb
	ip -n B link set lo up
	ip -n B link set vb up
	echo xroce >/tmp/stand
}

play() { # SERVER CLIENT: the output of the client, or of both if something fails
	timeout 60 $1 >/tmp/server 2>&1 &
	server=$!
	until grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; do
		kill -0 $server || { cat /tmp/server; exit 1; }
		sleep 0.05
	done
	timeout 60 $2 >/tmp/client 2>&1 || { cat /tmp/server /tmp/client; exit 1; }
	wait $server
	cat /tmp/client
}
perftest() { # PROGRAM OPTIONS
	rxe
	play "$* -d rxea -x 1 -F" "$* -d rxeb -x 1 -F 10.88.0.1"
}
perf() { # TEST OPTIONS
	xroce
	play "/tmp/xroce perf $1 -d va --cpu 0" "ip netns exec B /tmp/xroce perf $* -d vb --cpu 1 --json 10.88.0.1"
}
