# Run in the booted system: the package as an operator meets it, from its installation to its purge.
config=/etc/caproot/caproot.yaml socket=/run/caproot/caproot.sock log=/run/probe.log
drop_ins=/run/systemd/system/caproot.service.d

fail() {
  echo "package: $*" >&2
  { systemctl --no-pager status 'caproot*'; journalctl --no-pager -u 'caproot*' | tail -n 60; cat "$log"; } >&2
  exit 1
}
say() { echo "== $*"; }
property() { systemctl show --property="$1" --value "${2:-caproot.service}"; }
as() { runuser -u "$1" -- caproot "${@:2}"; }
# until SECONDS COMMAND…: waits for something to come true.
until_true() {
  local end=$((SECONDS + $1))
  while ! "${@:2}" &>/dev/null; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}
runs() { [[ $(property ActiveState) == active && $(property SubState) == running ]]; }
lists() { as alice list >"$log" 2>&1 && grep -q triage-logs "$log"; }
# What its log holds, which takes a moment to get there.
logs() { journalctl -u caproot | grep -q "$1"; }
restart() { systemctl reset-failed 'caproot*'; systemctl restart caproot || fail "no restart after $1"; }
owner_and_mode() { [[ $(stat -c '%U:%G %a' "$1") == "$2" ]] || fail "$1 is $(stat -c '%U:%G %a' "$1")"; }
# What the daemon says of itself in `systemctl status`.
told() { property StatusText | grep -q "$1"; }

installs() {
  say 'installs, and runs with nothing configured'
  dpkg -i /opt/debs/old.deb >"$log" 2>&1 || fail "not installed"
  runs || fail "it does not run"
  [[ $(systemctl is-enabled caproot.socket caproot.service) == $'enabled\nenabled' ]] || fail "not enabled"
  [[ $(systemctl is-enabled caproot-tcp.socket caproot-metrics.socket) == $'disabled\ndisabled' ]] ||
    fail "it would listen on TCP"
  getent passwd caproot | grep -q ':/nonexistent:/usr/sbin/nologin$' || fail "the user"
  owner_and_mode /run/caproot 'caproot:caproot 755'
  owner_and_mode $socket 'root:caproot 660'
  owner_and_mode /etc/caproot 'root:caproot 750'
  told '^0 roots' || fail "it does not say what it holds"
  caproot config check $config || fail "its own config"
}

is_walled() {
  say 'is walled in'
  systemd-analyze --man=no verify /usr/lib/systemd/system/caproot* >"$log" 2>&1 || fail "units"
  [[ ! -s $log ]] || fail "units"
  XDG_RUNTIME_DIR=/run HOME=/root systemd-analyze --man=no --user verify /usr/lib/systemd/user/caproot* >"$log" 2>&1 || fail "user units"
  systemd-analyze --no-pager --offline=true --threshold=5 security \
    /usr/lib/systemd/system/caproot.service >"$log" || fail "exposure over 0.5"
  tail -n 1 "$log"
  local of
  of=/proc/$(property MainPID)
  ! grep -E '^Cap(Eff|Prm|Bnd|Amb):' "$of/status" | grep -qv '0000000000000000$' || fail "capabilities"
  grep -qx $'NoNewPrivs:\t1' "$of/status" || fail "it could gain privileges"
  grep -qx $'Seccomp:\t2' "$of/status" || fail "no filter of system calls"
  [[ $(readlink "$of/ns/net") != "$(readlink /proc/self/ns/net)" ]] || fail "it has the machine's network"
  [[ $(readlink "$of/ns/user") == "$(readlink /proc/self/ns/user)" ]] || fail "it sees no true users"
  usermod -aG caproot alice && usermod -aG caproot carol || fail "no callers"
  as alice status >"$log" 2>&1
  grep -E '^(resolver|sandbox)' "$log"
  as alice status --output json | grep -q '"watchesLimit":"[1-9]' || fail "it sees no limit of watches"
  grep -q '^resolver *openat2$' "$log" || fail "openat2(2) does not work in the unit"
  grep -q '^sandbox .*landlock enforced.*no_new_privs' "$log" || fail "its own sandbox is not there"
}

serves() {
  say 'serves who may connect, and whom the config names'
  cat >>$config <<'YAML'
roots:
  - {id: demo, path: /srv/skills/demo}
callers:
  - {name: alice, uids: [alice]}
YAML
  restart "a root"
  lists || fail "alice gets no list"
  as bob list >"$log" 2>&1
  (($? == 5)) && grep -q 'may not use the socket' "$log" || fail "bob is not kept out by the socket's mode"
  as carol list >"$log" 2>&1
  (($? == 5)) || fail "carol is let in without a rule: the kernel does not say who calls"
  until_true 20 logs "access denied method=.* uid=$(id -u carol) .*CALLER_NOT_ALLOWED" ||
    fail "who was refused is not in the log"
}

follows() {
  say 'follows a change'
  as alice watch >/run/watched 2>&1 &
  until_true 20 grep -q ' = in step' /run/watched || fail "no stream"
  sed -i 's/^description: .*/description: Changed by hand./' /srv/skills/demo/write-changelog/SKILL.md
  until_true 20 grep -q '~ write-changelog .*Changed by hand' /run/watched || fail "the change is not told"
  as alice list --fresh | grep -q 'Changed by hand' || fail "the change is not listed"
  told '^1 roots .*3 skills' || fail "$(property StatusText)"
}

reloads() {
  say 'reads its config again, and refuses a bad one, under an open stream'
  local pid
  pid=$(property MainPID)
  # By number: a new name needs a new process, as the sandbox keeps the files of users closed.
  sed -i "s/uids: \\[alice\\]/uids: [alice, $(id -u carol)]/" $config
  systemctl reload caproot || fail "no reload"
  until_true 20 as carol list || fail "the new config is not in force"
  echo 'nonsense: 1' >>$config
  systemctl reload caproot || fail "no reload of a bad config"
  until_true 20 told 'new config was rejected: .*nonsense' || fail "it does not say that it refuses it"
  until_true 20 logs 'new configuration rejected: .*nonsense: unknown key' || fail "it does not say why"
  as carol list >"$log" 2>&1 || fail "the config from before is not in force"
  sed -i '$d' $config
  systemctl reload caproot || fail "no reload of the mended config"
  until_true 20 eval '! told rejected' || fail "it still says that it refuses it"
  sed -i 's/^description: .*/description: Changed again./' /srv/skills/demo/write-changelog/SKILL.md
  until_true 20 grep -q '~ write-changelog .*Changed again' /run/watched || fail "the stream ended"
  [[ $(property MainPID) == "$pid" && $(grep -c ' = in step' /run/watched) == 1 ]] || fail "it was restarted"
}

stops() {
  say 'stops in time, whatever a client does'
  # The watch of `follows` takes no more notice of anything.
  pkill -STOP -u alice -x caproot || fail "no client to hold a stream"
  local start=$SECONDS
  systemctl stop caproot || fail "it does not stop"
  [[ $(property Result) == success && $(property ExecMainStatus) == 0 ]] || fail "it did not end well"
  echo "stopped after $((SECONDS - start)) s"
  owner_and_mode $socket 'root:caproot 660'
  pkill -KILL -u alice -x caproot
  say 'is started by who connects'
  lists || fail "the socket starts nothing"
  runs || fail "it does not run"
}

heals() {
  say 'is started again when it is killed'
  local pid
  pid=$(property MainPID)
  kill -KILL "$pid"
  until_true 20 eval '[[ $(property NRestarts) != 0 ]] && runs' || fail "it stays dead"
  lists || fail "another catalog after a kill"
  if ! command -v strace >/dev/null; then
    echo "!! THE WATCHDOG WAS NOT TESTED: there is no strace to stop the watcher with"
    return
  fi
  say 'is started again by the watchdog when its watcher tells nothing'
  mkdir -p $drop_ins
  printf '[Service]\nWatchdogSec=3s\n' >$drop_ins/watchdog.conf
  systemctl daemon-reload
  restart "a shorter watchdog"
  pid=$(property MainPID)
  # From now on its reads of inotify, and no others, find nothing.
  strace -f -qq -o /dev/null -p "$pid" -P anon_inode:inotify -e trace=read -e inject=read:error=EAGAIN &
  until_true 60 eval '[[ $(property MainPID) != $pid ]] && runs' || fail "the watchdog does not bite"
  wait $!
  until_true 20 logs 'watchdog ping suppressed' || fail "it does not say why"
  until_true 20 logs 'Watchdog timeout' || fail "it was not the watchdog"
  rm $drop_ins/watchdog.conf
  systemctl daemon-reload
  restart "the usual watchdog"
  lists || fail "another catalog after the watchdog"
}

has_tcp() {
  say 'refuses a port that leaves the machine without TLS, and serves one that does not'
  systemctl stop caproot.socket caproot.service
  systemctl start caproot.socket caproot-tcp.socket || fail "no port"
  ! systemctl start caproot.service 2>/dev/null || fail "it serves the network without TLS"
  [[ $(property ExecMainStatus) == 78 ]] || fail "not as a bad configuration"
  until_true 20 logs 'LISTEN_FDS: .*other machines could connect without TLS' || fail "it does not say why"
  systemctl stop caproot-tcp.socket caproot.socket
  local here=/run/systemd/system/caproot-tcp.socket.d
  mkdir -p $here
  printf '[Socket]\nListenStream=\nListenStream=127.0.0.1:7420\n' >$here/here.conf
  systemctl daemon-reload
  # No rule knows a caller without a certificate.
  sed -i '/^callers:/,$d' $config
  systemctl start caproot.socket caproot-tcp.socket caproot-metrics.socket caproot.service ||
    fail "no sockets"
  as bob list --endpoint tcp:127.0.0.1:7420 >"$log" 2>&1
  grep -q triage-logs "$log" || fail "no list over TCP"
  exec 4<>/dev/tcp/127.0.0.1/9464
  printf 'GET /metrics HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n' >&4
  grep -q 'caproot_skills 3' <&4 || fail "no metrics"
  exec 4>&-
  systemctl stop caproot-tcp.socket caproot-metrics.socket
  restart "the usual sockets"
}

upgrades() {
  say 'is upgraded under a client, and keeps the config'
  local pid inode
  echo '# by hand' >>$config
  pid=$(property MainPID) inode=$(stat -c %i $socket)
  as alice watch >/run/watched 2>&1 &
  until_true 20 grep -q ' = in step' /run/watched || fail "no stream"
  dpkg -i /opt/debs/new.deb >"$log" 2>&1 || fail "not upgraded"
  runs || fail "it does not run"
  [[ $(property MainPID) != "$pid" ]] || fail "the old daemon still runs"
  [[ $(stat -c %i $socket) == "$inode" ]] || fail "callers were refused meanwhile"
  [[ $(tail -n 1 $config) == '# by hand' ]] || fail "the config is another"
  lists || fail "another catalog after the upgrade"
  until_true 20 eval '(($(grep -c " = in step" /run/watched) == 2))' || fail "the client does not come back"
  pkill -TERM -u alice -x caproot
  systemctl disable --now caproot.service caproot.socket 2>/dev/null
  dpkg -i /opt/debs/new.deb >"$log" 2>&1 || fail "not installed again"
  [[ $(systemctl is-enabled caproot.service) == disabled ]] || fail "what was disabled is enabled"
  systemctl enable --now caproot.service caproot.socket 2>/dev/null
}

reads_homes() {
  say 'reads homes where a drop-in lets it'
  mkdir -p /home/carol/skills $drop_ins
  cp -r /srv/skills/demo /home/carol/skills/
  chmod -R a+rX /home/carol
  sed -i 's|path: /srv/skills/demo|path: /home/carol/skills/demo|' $config
  restart "a root in a home"
  told '(1 unavailable' || fail "homes are open without being asked for"
  printf '[Service]\nProtectHome=read-only\n' >$drop_ins/homes.conf
  systemctl daemon-reload
  restart "a drop-in"
  lists || fail "the drop-in opens no home"
  rm $drop_ins/homes.conf
  systemctl daemon-reload
}

serves_a_person() {
  say "serves a person's own skills from a service manager of hers"
  mkdir -p /home/alice/.agents/skills
  cp -r /srv/skills/demo /home/alice/.agents/skills/
  chown -R alice: /home/alice
  systemctl start person || fail "no manager of a person"
  local hers=(runuser -u alice -- env XDG_RUNTIME_DIR=/run/user/64910 HOME=/home/alice)
  until_true 20 "${hers[@]}" systemctl --user is-system-running --wait
  "${hers[@]}" systemctl --user start caproot.socket >"$log" 2>&1 || fail "no socket of hers"
  owner_and_mode /run/user/64910/caproot.sock 'alice:alice 600'
  "${hers[@]}" caproot list --endpoint unix:/run/user/64910/caproot.sock >"$log" 2>&1
  grep -q 'triage-logs *user' "$log" || {
    "${hers[@]}" systemctl --user --no-pager status caproot >&2
    fail "her skills are not listed"
  }
  "${hers[@]}" systemctl --user stop caproot.service caproot.socket || fail "it does not stop"
  systemctl stop person
}

goes() {
  say 'goes without a trace but its user'
  dpkg -r caproot >"$log" 2>&1 || fail "not removed"
  [[ $(property ActiveState) == inactive && ! -e $socket ]] || fail "it still runs"
  [[ -e $config ]] || fail "the config went too early"
  dpkg -P caproot >"$log" 2>&1 || fail "not purged"
  local left
  left=$(ls -d /etc/caproot /run/caproot /usr/bin/caproot /etc/systemd/system/*/caproot* 2>/dev/null)
  [[ -z $left ]] || fail "left: $left"
}

# This text comes by stdin, from which the commands are kept.
{
  exec </dev/null
  installs
  is_walled
  serves
  follows
  reloads
  stops
  heals
  has_tcp
  upgrades
  reads_homes
  serves_a_person
  goes
  exit 0
}
