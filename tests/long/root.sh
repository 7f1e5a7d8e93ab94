# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# Bare Debian 12 roots for the long tests. Sourced; $work is where they are kept.

# where this host gets its own packages from
mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)}

# bare_root FOLDER: a fresh root of the base system alone, from a copy that is made once.
bare_root() {
	if [ ! -d "$work/base/etc" ]; then
		rm -rf "$work/base.new" "$work/base"
		debootstrap --variant=minbase bookworm "$work/base.new" "$mirror" >"$work/debootstrap.log" 2>&1 || {
			tail -n 20 "$work/debootstrap.log"
			return 1
		}
		mv "$work/base.new" "$work/base"
	fi
	rm -rf "${1:?}"
	cp -a "$work/base" "$1"
	cp /etc/resolv.conf "$1/etc/resolv.conf"
}

# inside FOLDER COMMAND...: runs it in the root, in a mount namespace of its own: nothing stays mounted.
inside() {
	root=$1
	shift
	# shellcheck disable=SC2016 # expanded inside
	unshare --mount --propagation private sh -c '
		root=$1; shift
		mount --rbind /proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" || exit 1
		mkdir -p "$root/run" && mount -t tmpfs tmpfs "$root/run" || exit 1
		exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
			chroot "$root" "$@"
	' sh "$root" "$@"
}

failed=0

# step NAME COMMAND...: one line of the report; the end of its output if it failed.
step() {
	name=$1
	shift
	begin=$(date +%s)
	# In the background, since `set -e` does not hold in what an `if` runs.
	(
		set -e
		"$@"
	) >"$work/step.log" 2>&1 &
	if wait $!; then
		echo "ok $name ($(($(date +%s) - begin)) s)"
		grep '^  ' "$work/step.log" || true
	else
		failed=1
		echo "not ok $name"
		tail -n 30 "$work/step.log" | sed 's/^/| /'
	fi
}
