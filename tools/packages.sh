# SPDX-License-Identifier: Apache-2.0
# Debian 12 packages that building and testing need, and one function that installs what is missing.
# Sourced by tools/quickstart and tools/test.

build_packages="gcc make clang-14 bpftool pkg-config libc6-dev libbpf-dev libelf-dev libdw-dev libcjson-dev
	libmicrohttpd-dev libsqlite3-dev libzstd-dev zlib1g-dev libcurl4-gnutls-dev libgnutls28-dev
	libiberty-dev"

test_packages="libcmocka-dev g++ binutils python3 python3-jsonschema python3-venv nodejs npm curl openssl procps iproute2 util-linux linux-perf libc6-dbg mold
	llvm-14 libclang-rt-14-dev dwz debuginfod openjdk-17-jdk-headless gdb sqlite3 protobuf-compiler golang-go rustc postgresql redis-server nginx-light clickhouse-server wrk stress-ng valgrind
	clang-format-14 clang-tidy-14 cppcheck git shellcheck pmccabe
	qemu-system-x86 busybox-static cpio kmod chromium systemd"

# What only `make check-long` needs.
# shellcheck disable=SC2034 # read by who sources this
long_packages="libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0 musl-tools python3-dev"

# patiently COMMAND...: a download may break off: up to four tries.
patiently() {
	for pause in 5 20 60; do
		"$@" && return 0
		echo "$1 failed; trying again in $pause s" >&2
		sleep "$pause"
	done
	"$@"
}

# apt_patiently DO...: with lists as they are now, where the first try with those that are there fails.
apt_patiently() {
	apt-get -o Acquire::Retries=3 -qq "$@" || patiently apt_renewed "$@"
}

apt_renewed() {
	apt-get -o Acquire::Retries=3 -qq update && apt-get -o Acquire::Retries=3 -qq "$@"
}

# install_missing PACKAGE...: says what it installs; nothing to do and nothing said when all are there.
install_missing() {
	missing=
	for package in "$@"; do
		case $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) in
		installed) ;;
		*)
			# A tool that is there without its package (another toolchain) need not be installed.
			case $package in
			golang-go) command -v go >/dev/null 2>&1 && continue ;;
			rustc) command -v rustc >/dev/null 2>&1 && continue ;;
			python3) command -v python3 >/dev/null 2>&1 && continue ;;
			nodejs) command -v node >/dev/null 2>&1 && continue ;;
			npm) command -v npm >/dev/null 2>&1 && continue ;;
			openjdk-17-jdk-headless) command -v javac >/dev/null 2>&1 && continue ;;
			esac
			missing="$missing $package"
			;;
		esac
	done
	[ -n "$missing" ] || return 0
	if [ "$(id -u)" != 0 ]; then
		echo "missing packages:$missing" >&2
		echo "run this as root once, or: apt-get install$missing" >&2
		return 1
	fi
	echo "installing:$missing"
	export DEBIAN_FRONTEND=noninteractive
	# Slim images have no man pages, not even the folder that a JDK links into.
	mkdir -p /usr/share/man/man1
	# shellcheck disable=SC2086 # a list of words on purpose
	patiently apt_renewed install -y --no-install-recommends $missing >/dev/null
}

# newer_go: Debian's Go cannot fetch other releases of Go, which the tests do: the first one comes as a module, into
# build/, and onto the PATH.
newer_go() {
	release=1.26.8
	case $(go env GOVERSION) in go1.1[0-9] | go1.1[0-9].* | go1.20 | go1.20.*) ;; *) return 0 ;; esac
	if [ ! -x "build/go-$release/bin/go" ]; then
		echo "installing: Go $release into build/, since $(go env GOVERSION) cannot fetch others"
		mkdir -p build
		patiently go mod download "golang.org/toolchain@v0.0.1-go$release.linux-$(go env GOARCH)" || return 1
		folder=$(go mod download -json "golang.org/toolchain@v0.0.1-go$release.linux-$(go env GOARCH)" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
		rm -rf "build/go-$release.new" && cp -r "${folder:?it could not be downloaded}" "build/go-$release.new" || return 1
		# Modules keep no modes.
		chmod -R u+w "build/go-$release.new" && chmod -R a+x "build/go-$release.new/bin" "build/go-$release.new/pkg/tool"
		mv "build/go-$release.new" "build/go-$release"
	fi
	PATH=$PWD/build/go-$release/bin:$PATH
	export PATH
}
