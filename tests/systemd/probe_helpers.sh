# Helpers of all probes. `boot` runs them before the probe, with the name of the probe as the argument.
probe=$1 config=/etc/caproot/caproot.yaml socket=/run/caproot/caproot.sock log=/run/probe.log

fail() {
  echo "$probe: $*" >&2
  { systemctl --no-pager status 'caproot*'; journalctl --no-pager -u 'caproot*' | tail -n 60; cat "$log"; } >&2
  exit 1
}
say() { echo "== $*"; }
property() { systemctl show --property="$1" --value "${2:-caproot.service}"; }
as() { runuser -u "$1" -- caproot "${@:2}"; }
# until_true SECONDS COMMAND…: waits for a command to succeed.
until_true() {
  local end=$((SECONDS + $1))
  while ! "${@:2}" &>/dev/null; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}
is_running() { [[ $(property ActiveState) == active && $(property SubState) == running ]]; }
# Whether the journal of the daemon has a matching line. Lines arrive with a delay.
log_has() { journalctl -u caproot | grep -q "$1"; }
# Whether the status line of the daemon in `systemctl status` matches.
status_has() { property StatusText | grep -q "$1"; }
owner_and_mode() { [[ $(stat -c '%U:%G %a' "$1") == "$2" ]] || fail "$1 is $(stat -c '%U:%G %a' "$1")"; }
# Whether the process has no capability and cannot gain privileges.
has_no_privileges() {
  ! grep -E '^Cap(Eff|Prm|Bnd|Amb):' "/proc/$1/status" | grep -qv '0000000000000000$' &&
    grep -qx $'NoNewPrivs:\t1' "/proc/$1/status"
}
