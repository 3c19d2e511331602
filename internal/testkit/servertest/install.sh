#!/bin/sh
# Installs the programs that the tests start, where they are missing: memcached
# and redis-server, with redis-cli. A sentinel is redis-server by another name.
# And curl, a client that is not Go's, and nginx, caddy and haproxy, the proxies of
# docs/http.md. The long form of the tests has chromium, which looks at pages, and clients
# of npm.
#
# It installs on Debian and its kin only, and only as root or in CI. Elsewhere
# it says what to install and fails, so that no test runs without its server.
#
# The packages come with services. Those are neither started nor enabled: a
# test must not leave a Redis on port 6379 behind.
set -eu
PATH=$PATH:/usr/sbin # of nginx and haproxy, for users other than root on Debian

packages='' services=''
have() { command -v "$1" >/dev/null 2>&1; }
have memcached    || { packages="$packages memcached"    services="$services memcached"; }
have redis-server || { packages="$packages redis-server" services="$services redis-server"; }
have redis-cli    || { packages="$packages redis-tools"; }
have curl         || { packages="$packages curl"; }
if [ "${ABACUS_TESTS:-}" = long ]; then # hundreds of packages
	have node || { packages="$packages nodejs"; }
	have npm  || { packages="$packages npm"; }
	have chromium || have chromium-browser || have google-chrome || have google-chrome-stable || { packages="$packages chromium fonts-liberation"; }
fi
have nginx        || { packages="$packages nginx-light"  services="$services nginx"; }
have caddy        || { packages="$packages caddy"        services="$services caddy"; }
have haproxy      || { packages="$packages haproxy"      services="$services haproxy"; }
[ -n "$packages" ] || { echo 'the programs that the tests start are there'; exit 0; }

refuse() {
	cat >&2 <<-END
	The tests start real programs and miss:$packages ($1).
	Install them, then run make again:
	    Debian, Ubuntu   apt-get install memcached redis-server curl nodejs npm chromium nginx-light caddy haproxy    ("make test" as root does it, and starts no service)
	    Fedora           dnf install memcached redis curl nodejs npm chromium nginx caddy haproxy
	    macOS            brew install memcached redis curl node chromium nginx caddy haproxy
	END
	exit 1
}

have apt-get || refuse 'there is no apt-get here to install them with'
if [ "$(id -u)" != 0 ]; then
	[ -n "${CI:-}" ] || refuse 'only root or CI installs them'
	sudo -n true 2>/dev/null || refuse 'sudo asks for a password'
	exec sudo -n ABACUS_TESTS="${ABACUS_TESTS:-}" sh "$0"
fi

# The maintainer scripts ask policy-rc.d before they start a service: 101 is
# no. One that is there already is the machine's own and stays. Ours says no
# only while this script runs, in case that it is killed before it cleans up.
policy=/usr/sbin/policy-rc.d
mark='placed by the tests of abacus'
placed=''
clean() {
	[ -z "$placed" ] || rm -f "$policy"
	# They would start at the next boot, or run already where the machine's
	# own policy-rc.d allowed it. Without systemd there may be nothing that
	# runs services at all.
	for service in $services; do
		if ! have "$service"; then
			continue
		elif [ -d /run/systemd/system ]; then
			systemctl disable --now "$service"
		else
			service "$service" stop || true
			update-rc.d "$service" disable || true
		fi
	done
}
trap clean EXIT
trap 'exit 1' HUP INT TERM
if grep -qs "$mark" "$policy"; then rm -f "$policy"; fi
if [ ! -e "$policy" ]; then
	placed=yes
	printf '#!/bin/sh\n# %s\nkill -0 %s 2>/dev/null && exit 101\nexit 0\n' "$mark" $$ >"$policy"
	chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
install() {
	# shellcheck disable=SC2086 # a list of words
	apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $packages
}
echo "installing$packages, without starting services"
# Without lists, or with old ones that name files gone from the mirror, the
# first attempt fails.
install || { apt-get -qq -o DPkg::Lock::Timeout=300 update && install; }
