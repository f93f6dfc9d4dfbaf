#!/usr/bin/env bash
# Installs missing tools that the tests and measurements need besides Go, Node and npm. It installs
# them by apt-get if it runs as root on Debian or Ubuntu. Otherwise it says what to install.
#   internal/tools/dev/install.sh compiler|chromium|inter|wrk|nginx|shellcheck|wine ...
set -euo pipefail

has() { type -P "$1" >/dev/null; } # finds programs, not the functions of this script

may_install() { [ "$(id -u)" = 0 ] && has apt-get; }

# install NAME WHY PACKAGE... installs packages, or says why they are needed.
install() {
	local name=$1 why=$2
	shift 2
	if ! may_install; then
		echo "$why: install $name (Debian, Ubuntu: apt-get install $*)" >&2
		return 1
	fi
	echo "Installing $name"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

compiler() {
	has "${CC:-cc}" || has gcc || install "a C compiler" "The race detector needs one" gcc libc6-dev
}

# chromium installs the Chromium that has no windows, which takes half of the time. Ubuntu lacks it.
chromium() {
	local why="The pages are tested in it"
	has chromium-headless-shell ||
		install "Chromium" "$why" chromium-headless-shell fonts-dejavu-core 2>/dev/null ||
		has chromium || has chromium-browser || has google-chrome ||
		install "Chromium" "$why" chromium fonts-dejavu-core
}

inter() {
	[ -d /usr/share/fonts/opentype/inter ] ||
		install "the font Inter" "The pictures of the pages are in it" fonts-inter
}

wrk() { has wrk || install "wrk" "It makes the load" wrk; }

shellcheck() { has shellcheck || install "shellcheck" "It checks the scripts" shellcheck; }

# nginx is not installed on systems with systemd, which most containers lack: there it would serve
# port 80 as soon as it is installed.
nginx() {
	PATH="$PATH:/usr/sbin"
	has nginx || { [ ! -d /run/systemd/system ] && install "nginx" "It is measured beside" nginx-light; } ||
		echo "nginx is not installed: measuring without it"
}

# wine installs Wine for programs of 32 and 64 bits, and linkers for a library that Debian's Wine
# lacks.
wine() {
	local programs=(wine wine64 binutils-mingw-w64-i686 binutils-mingw-w64-x86-64)
	local all=("${programs[@]}" wine32:i386) before failed=
	if has wine && has i686-w64-mingw32-ld && has x86_64-w64-mingw32-ld &&
		{ ! has dpkg || [ -d /usr/lib/i386-linux-gnu/wine ]; }; then return; fi
	if ! may_install; then
		echo "Wine and linkers run the packages for Windows. On Debian and Ubuntu, as root:" >&2
		echo "dpkg --add-architecture i386 && apt-get update && apt-get install ${all[*]}" >&2
		return 1
	fi
	echo "Installing Wine, which takes a minute"
	before=$(dpkg --print-foreign-architectures)
	dpkg --add-architecture i386
	export DEBIAN_FRONTEND=noninteractive
	timeout 120 apt-get update -qq || true
	if ! { timeout 600 apt-get install -y -qq -d --no-install-recommends "${all[@]}" &&
		apt-get install -y -qq --no-download --no-install-recommends "${all[@]}"; } >/dev/null; then
		wine_unpacked "${programs[@]}" || failed=true
		# Its indexes would break the next update.
		case "$before" in *i386*) ;; *) dpkg --remove-architecture i386 ;; esac
	fi
	if [ -n "$failed" ]; then
		echo "Wine cannot be installed" >&2
		return 1
	fi
}

# wine_unpacked installs Wine where apt-get refuses to, since Debian's packages for i386 are
# sometimes older than those for the machine's own architecture. It unpacks them beside those: all
# their libraries are in folders of i386. dpkg does not know of these files, so only a container
# gets them.
wine_unpacked() {
	local packages=(wine32 libwine libc6 libgcc-s1 libstdc++6 libunwind8 liblzma5) dir deb
	if [ -d /run/systemd/system ]; then return 1; fi
	echo "apt-get refuses Wine of 32 bits: unpacking it"
	apt-get install -y -qq --no-install-recommends "$@" >/dev/null || return 1
	dir=$(mktemp -d)
	(cd "$dir" &&
		apt-get download -qq -o APT::Sandbox::User=root "${packages[@]/%/:i386}") || return 1
	for deb in "$dir"/*.deb; do
		dpkg --fsys-tarfile "$deb" | tar -x -C / --keep-directory-symlink --skip-old-files \
			--exclude=./etc --exclude=./usr/share || return 1
	done
	rm -r "$dir"
	# The package's own script, which has not run, would put it there.
	cp /usr/lib/{x86_64,i386}-linux-gnu/wine/i386-windows/zlib1.dll
}

for tool in "$@"; do
	case "$tool" in
	compiler | chromium | inter | wrk | nginx | shellcheck | wine) "$tool" ;;
	*) echo "unknown tool: $tool" >&2 && exit 2 ;;
	esac
done
