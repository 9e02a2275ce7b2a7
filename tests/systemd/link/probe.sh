# Runs the daemon, the link and a broker under systemd, and lists skills through the broker.
set -uo pipefail

has_list() { caproot list --fleet /etc/fleet/fleet.yaml --environment-id one >"$log" 2>&1; }
link_log_has() { journalctl -u caproot-link | grep -q "$1"; }

say 'the files of the page give a list over a tunnel'
systemctl start caproot.socket caproot-tcp.socket caproot.service || fail "the daemon does not start"
ss -ltn 2>/dev/null | grep -q '0.0.0.0:7420' && fail "the port of the daemon is not on loopback only"
# The unit waits for the broker.
systemctl start --no-block caproot-link.service || fail "the link does not start"
systemd-run --quiet --unit=broker nats-server -c /etc/nats-server.conf || fail "no broker"
until_true 40 systemctl is-active --quiet caproot-link || fail "the link is not ready"
has_list && grep -q triage-logs "$log" || fail "no list over the tunnel"

say 'the link has no privileges and no files'
pid=$(property MainPID caproot-link.service)
has_no_privileges "$pid" || fail "the link has a capability or could gain privileges"
grep -qx $'Seccomp:\t2' "/proc/$pid/status" || fail "no system call filter"
[[ $(stat -c %u "/proc/$pid") != 0 ]] || fail "the link runs as root"
! nsenter -m -t "$pid" ls /srv/skills >"$log" 2>&1 || fail "the link sees the skills"
systemd-analyze --no-pager --offline=true --threshold=15 security \
  /etc/systemd/system/caproot-link.service >"$log" || fail "exposure over 1.5"

say 'the link stops, and dials fail at once'
systemctl stop caproot-link || fail "the link does not stop"
[[ $(property Result caproot-link.service) == success ]] || fail "the link failed"
has_list && fail "a list without a link"
grep -q 'no link serves the environment' "$log" || fail "another error"
