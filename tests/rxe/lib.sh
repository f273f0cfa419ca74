# shellcheck shell=bash disable=SC2034 # what is set here is used by those who source it
# Sourced by the commands here: names, places, who is alive.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${XROCE_CACHE:-$HOME/.cache/xroce}/rxe
NAME=${XROCE_RXE_NAME:-roce} # host network namespace and prefix of its interfaces
GUEST=${XROCE_RXE_GUEST:-2}  # number of the guest = last byte of its addresses
KERNEL=${XROCE_RXE_KERNEL:-6.12}
SKIP=77 # exit status: this machine cannot (nothing is broken); the reason is on stderr

die() { echo "${0##*/}: $*" >&2; exit 1; }
skip() { echo "${0##*/}: $*" >&2; exit "$SKIP"; }

set_names() {
	[[ $GUEST =~ ^[1-9][0-9]{0,2}$ ]] && ((GUEST >= 2 && GUEST <= 200)) ||
		die "--guest (XROCE_RXE_GUEST) is '$GUEST': it takes 2 to 200, the last byte of the guest's addresses"
	HOSTNS=$NAME             # the host's end of the veth lives here
	BRNS=$NAME-br            # bridge, tap, and the QEMU process
	RUN=$CACHE/run/$NAME     # state of this set
	ST=$RUN/g$GUEST          # state of this guest
	PORT=$((2200 + GUEST))   # commands (agent/remote.c), on 127.0.0.1 inside $BRNS
	VPORT=$((2500 + GUEST))  # verbs (agent/peer.c), likewise
}
set_names

# Everything here makes namespaces or installs packages. Without root the command runs itself again under sudo.
as_root() {
	[ "$(id -u)" != 0 ] || return 0
	command -v sudo >/dev/null || skip "needs root (network namespaces, packages), and there is no sudo"
	local ask=-n
	[ ! -t 0 ] || ask=
	exec sudo $ask XROCE_CACHE="${XROCE_CACHE:-$HOME/.cache/xroce}" XROCE_RXE_NAME="$NAME" XROCE_RXE_GUEST="$GUEST" \
		XROCE_RXE_KERNEL="$KERNEL" "$0" "$@" || skip "needs root; sudo refused"
}

# A process is known by its id and start time (QEMU: by its id and our console file on its command line),
# so that nothing but what we started is ever ended.
proc_start() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
alive() { # $1: file holding "PID START"
	local p s
	[ -s "$1" ] && read -r p s <"$1" && [ -n "$s" ] && [ "$(proc_start "$p")" = "$s" ]
}
guest_alive() { # $1: state of a guest
	local p
	{ [ -s "$1/qemu.pid" ] && read -r p <"$1/qemu.pid"; } 2>/dev/null && tr '\0' ' ' 2>/dev/null <"/proc/$p/cmdline" | grep -qF "file:$1/console "
}
netns_id() { stat -L -c %i "/run/netns/$1" 2>/dev/null; }

# net_add NAME: a namespace of ours, noted with its inode so that a namesake made later is not taken for it.
net_add() {
	[ ! -e "/run/netns/$1" ] || die "network namespace $1 exists and was not made here (another --name?)"
	ip netns add "$1" 2>/dev/null || skip "this machine lets nobody make network namespaces"
	echo "$1 $(netns_id "$1")" >>"$RUN/net"
}
net_up() { # do all our namespaces stand?
	local n i c=0
	[ -e "$RUN/net" ] || return 1
	while read -r n i; do
		[ "$(netns_id "$n")" = "$i" ] || return 1
		c=$((c + 1))
	done <"$RUN/net"
	[ $c = 2 ] && [ -e "$RUN/mtu" ]
}
net_del() {
	local n i
	[ ! -e "$RUN/net" ] || while read -r n i; do
		[ "$(netns_id "$n")" != "$i" ] || ip netns del "$n"
	done <"$RUN/net"
	rm -rf "$RUN"
}
host() { ip -n "$HOSTNS" "$@"; }
br() { ip -n "$BRNS" "$@"; }
plain() { # $1 netns, $2 interface: every frame as it will be on the wire
	ip netns exec "$1" ethtool -K "$2" tx off rx off sg off tso off gso off gro off >/dev/null 2>&1 || true
}
# Both namespaces, the veth roce0 - roce0p between them, and the bridge.
net_make() { # $1 MTU, $2 offload on|off
	net_add "$HOSTNS"
	net_add "$BRNS"
	# No IPv6 chatter (router solicitations, MLD) on the wire.
	ip netns exec "$BRNS" sysctl -qw net.ipv6.conf.default.disable_ipv6=1 net.ipv6.conf.all.disable_ipv6=1
	ip netns exec "$HOSTNS" sysctl -qw net.ipv6.conf.default.accept_ra=0 net.ipv6.conf.default.router_solicitations=0
	br link set lo up
	host link set lo up
	br link add br0 mtu "$1" type bridge stp_state 0 forward_delay 0 mcast_snooping 0
	br link set br0 up
	ip link add "${NAME}0" netns "$HOSTNS" mtu "$1" type veth peer name "${NAME}0p" netns "$BRNS" mtu "$1"
	host link set "${NAME}0" address 02:00:0a:4d:00:01
	br link set "${NAME}0p" master br0 up
	host link set "${NAME}0" up
	host addr add 10.77.0.1/24 dev "${NAME}0"
	host addr add fd00:77::1/64 dev "${NAME}0" nodad
	if [ "$2" = off ]; then
		plain "$HOSTNS" "${NAME}0"
		plain "$BRNS" "${NAME}0p"
	fi
	echo "$1" >"$RUN/mtu"
}
# Guests whose --attached owner died without a chance to tidy up, in any set of this cache.
reap() {
	local st n
	for st in "$CACHE"/run/*/{g*,uml}; do
		[ -e "$st/owner" ] || continue
		! alive "$st/owner" || continue
		n=${st%/*} n=${n##*/}
		case $st in
		*/uml) XROCE_RXE_NAME=$n "$HERE/uml" down >&2 || true ;;
		*) "$HERE/down" --name "$n" --guest "${st##*/g}" >&2 || true ;;
		esac
	done
}
# What the machine lacks of these Debian packages is installed.
packages() {
	local p missing=() made=
	for p in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || skip "needs Debian packages and there is no apt-get: ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	local lock=(-o DPkg::Lock::Timeout=300 -o Acquire::Retries=2)
	apt-get "${lock[@]}" update -qq >/dev/null 2>&1 || true # one dead source of many does no harm
	# No service of these is wanted on this machine: let none start.
	[ -e /usr/sbin/policy-rc.d ] || {
		made=1
		printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
		chmod +x /usr/sbin/policy-rc.d
	}
	local rc=0
	apt-get "${lock[@]}" install -y -qq --no-install-recommends "${missing[@]}" >"$CACHE/apt.log" 2>&1 || rc=$?
	[ -z "$made" ] || rm -f /usr/sbin/policy-rc.d
	[ $rc = 0 ] || { tail -n 5 "$CACHE/apt.log" >&2; skip "apt-get could not install: ${missing[*]}"; }
}
since() { awk -v a="$1" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }'; }
