#!/bin/sh
# Installs xroce with its manual pages and completions below PREFIX (/usr/local), or removes it from there.
#   ./install.sh               PREFIX=~/.local ./install.sh needs no root; else sudo is asked for where it is needed
#   ./install.sh --remove
# DESTDIR is put in front of PREFIX, for those who make packages.
set -eu
cd "$(dirname "$0")"
PREFIX=${PREFIX:-/usr/local}
to=${DESTDIR:-}$PREFIX
case ${1:-} in
'' | --remove) ;;
*)
	sed -n '2,5s/^# \{0,1\}//p' "$(basename "$0")"
	exit 2
	;;
esac

# The nearest directory that is there tells who may write.
nearest=$to
while [ ! -d "$nearest" ]; do nearest=$(dirname "$nearest"); done
as_root=
if [ ! -w "$nearest" ] && [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || { echo "install.sh: $nearest is not writable: run as root, or with PREFIX=~/.local" >&2; exit 1; }
	as_root=sudo
fi

if [ "${1:-}" = --remove ]; then
	$as_root rm -rf "$to/share/doc/xroce"
	$as_root rm -f "$to/bin/xroce" "$to/share/man/man1/xroce.1" "$to/share/man/man1/xroce-"*.1 \
		"$to/share/bash-completion/completions/xroce" "$to/share/zsh/site-functions/_xroce" \
		"$to/share/fish/vendor_completions.d/xroce.fish"
	echo "removed from $to"
	exit
fi

find bin share -type f | while read -r file; do
	mode=644
	[ ! -x "$file" ] || mode=755
	$as_root install -D -m "$mode" "$file" "$to/$file"
done
echo "installed: $to/bin/xroce; manual: man xroce"
case :$PATH: in
*:"$PREFIX/bin":*) ;;
*) echo "$PREFIX/bin is not in PATH" ;;
esac
