# Runs in the booted system. Tests the package from installation to purge.
drop_ins=/run/systemd/system/caproot.service.d

alice_lists() { as alice list >"$log" 2>&1 && grep -q triage-logs "$log"; }
restart() { systemctl reset-failed 'caproot*'; systemctl restart caproot || fail "no restart after $1"; }

installs() {
  say 'installs and runs without configuration'
  dpkg -i /opt/debs/old.deb >"$log" 2>&1 || fail "not installed"
  is_running || fail "the service does not run"
  [[ $(systemctl is-enabled caproot.socket caproot.service) == $'enabled\nenabled' ]] || fail "not enabled"
  [[ $(systemctl is-enabled caproot-tcp.socket caproot-metrics.socket) == $'disabled\ndisabled' ]] ||
    fail "a TCP socket is enabled"
  getent passwd caproot | grep -q ':/nonexistent:/usr/sbin/nologin$' || fail "the user is wrong"
  owner_and_mode /run/caproot 'caproot:caproot 755'
  owner_and_mode $socket 'root:caproot 660'
  owner_and_mode /etc/caproot 'root:caproot 750'
  status_has '^0 published roots' || fail "the status does not count roots"
  caproot config check $config || fail "the default config is invalid"
}

is_sandboxed() {
  say 'runs in a sandbox'
  systemd-analyze --man=no verify /usr/lib/systemd/system/caproot* >"$log" 2>&1 || fail "units"
  [[ ! -s $log ]] || fail "units"
  XDG_RUNTIME_DIR=/run HOME=/root systemd-analyze --man=no --user verify /usr/lib/systemd/user/caproot* >"$log" 2>&1 || fail "user units"
  systemd-analyze --no-pager --offline=true --threshold=5 security \
    /usr/lib/systemd/system/caproot.service >"$log" || fail "exposure over 0.5"
  tail -n 1 "$log"
  local proc
  proc=/proc/$(property MainPID)
  has_no_privileges "$(property MainPID)" || fail "the daemon has a capability or could gain privileges"
  grep -qx $'Seccomp:\t2' "$proc/status" || fail "no system call filter"
  [[ $(readlink "$proc/ns/net") != "$(readlink /proc/self/ns/net)" ]] || fail "the daemon has the network of the machine"
  [[ $(readlink "$proc/ns/user") == "$(readlink /proc/self/ns/user)" ]] || fail "the daemon has a user namespace"
  usermod -aG caproot alice && usermod -aG caproot carol || fail "no callers"
  as alice status >"$log" 2>&1
  grep -E '^(resolver|sandbox)' "$log"
  as alice status --output json | grep -q '"watchesLimit":"[1-9]' || fail "the daemon does not know the limit of watches"
  grep -q '^resolver *openat2$' "$log" || fail "openat2(2) does not work in the unit"
  grep -q '^sandbox .*landlock enforced.*no_new_privs' "$log" || fail "Landlock is not enforced"
}

serves() {
  say 'serves callers that may connect and match a rule'
  cat >>$config <<'YAML'
roots:
  - {id: demo, path: /srv/skills/demo}
callers:
  - {name: alice, uids: [alice]}
YAML
  restart "a root"
  alice_lists || fail "alice gets no list"
  as bob list >"$log" 2>&1
  (($? == 5)) && grep -q 'may not use the socket' "$log" || fail "bob is not kept out by the socket's mode"
  as carol list >"$log" 2>&1
  (($? == 5)) || fail "carol is not rejected: she matches no rule"
  until_true 20 log_has "access denied method=.* uid=$(id -u carol) .*CALLER_NOT_ALLOWED" ||
    fail "the denied caller is not in the log"
}

follows() {
  say 'follows a change'
  as alice watch >/run/watched 2>&1 &
  until_true 20 grep -q ' = synced' /run/watched || fail "no stream"
  sed -i 's/^description: .*/description: Changed by hand./' /srv/skills/demo/write-changelog/SKILL.md
  until_true 20 grep -q '~ write-changelog .*Changed by hand' /run/watched || fail "the stream does not report the change"
  as alice list --fresh | grep -q 'Changed by hand' || fail "the change is not listed"
  status_has '^1 published roots .*3 skills' || fail "$(property StatusText)"
}

reloads() {
  say 'reloads its config and rejects a bad config, with an open stream'
  local pid
  pid=$(property MainPID)
  # The rule has a number: a new user name needs a restart, because the sandbox hides /etc/passwd.
  sed -i "s/uids: \\[alice\\]/uids: [alice, $(id -u carol)]/" $config
  systemctl reload caproot || fail "no reload"
  until_true 20 as carol list || fail "the new config is not applied"
  echo 'nonsense: 1' >>$config
  systemctl reload caproot || fail "no reload of a bad config"
  until_true 20 status_has 'new config was rejected: .*nonsense' || fail "the status does not report the rejection"
  until_true 20 log_has 'new configuration rejected: .*nonsense: unknown key' || fail "the log does not name the key"
  as carol list >"$log" 2>&1 || fail "the previous config is not active"
  sed -i '$d' $config
  systemctl reload caproot || fail "no reload of the corrected config"
  until_true 20 eval '! status_has rejected' || fail "the status still reports the rejection"
  sed -i 's/^description: .*/description: Changed again./' /srv/skills/demo/write-changelog/SKILL.md
  until_true 20 grep -q '~ write-changelog .*Changed again' /run/watched || fail "the stream ended"
  [[ $(property MainPID) == "$pid" && $(grep -c ' = synced' /run/watched) == 1 ]] || fail "the daemon was restarted"
}

rejects_shared_tokens() {
  say 'rejects a token that callers can read, and takes the token of the daemon alone'
  local token=/etc/caproot/job.token
  echo secret | install -o root -g caproot -m 0640 /dev/stdin $token
  echo '  - {name: job, token_file: job.token}' >>$config
  caproot config check $config >"$log" 2>&1
  (($? == 78)) && grep -q 'job.token.*members can connect .*chmod 0600' "$log" || fail "config check accepts the token"
  systemctl reload caproot || fail "no reload"
  until_true 20 status_has 'new config was rejected: .*token_file' || fail "the reload accepts the token"
  echo secret | install -o caproot -m 0400 /dev/stdin $token
  caproot config check $config >"$log" 2>&1 || fail "config check rejects the token of the daemon"
  systemctl reload caproot || fail "no reload"
  until_true 20 eval '! status_has rejected' || fail "the reload rejects the token of the daemon"
  sed -i '$d' $config
  systemctl reload caproot || fail "no reload without the token"
  rm $token
}

stops() {
  say 'stops in time, even if a client does not read'
  # The client of `follows` no longer reads its stream.
  pkill -STOP -u alice -x caproot || fail "no client with a stream"
  local start=$SECONDS
  systemctl stop caproot || fail "the service does not stop"
  [[ $(property Result) == success && $(property ExecMainStatus) == 0 ]] || fail "the daemon did not exit cleanly"
  echo "stopped after $((SECONDS - start)) s"
  owner_and_mode $socket 'root:caproot 660'
  pkill -KILL -u alice -x caproot
  say 'starts on a connection'
  alice_lists || fail "the socket does not start the service"
  is_running || fail "the service does not run"
}

heals() {
  say 'restarts after a kill'
  local pid
  pid=$(property MainPID)
  kill -KILL "$pid"
  until_true 20 eval '[[ $(property NRestarts) != 0 ]] && is_running' || fail "the daemon does not restart"
  alice_lists || fail "another catalog after a kill"
  if ! command -v strace >/dev/null; then
    echo "!! THE WATCHDOG WAS NOT TESTED: strace is not installed"
    return
  fi
  say 'is restarted by the watchdog if the inotify watcher does not respond'
  mkdir -p $drop_ins
  printf '[Service]\nWatchdogSec=3s\n' >$drop_ins/watchdog.conf
  systemctl daemon-reload
  restart "a shorter watchdog"
  pid=$(property MainPID)
  # From now on, only reads of inotify find no events.
  strace -f -qq -o /dev/null -p "$pid" -P anon_inode:inotify -e trace=read -e inject=read:error=EAGAIN &
  until_true 60 eval '[[ $(property MainPID) != $pid ]] && is_running' || fail "the watchdog does not restart the daemon"
  wait $!
  until_true 20 log_has 'watchdog ping suppressed' || fail "the log does not name the cause"
  until_true 20 log_has 'Watchdog timeout' || fail "the watchdog was not the cause"
  rm $drop_ins/watchdog.conf
  systemctl daemon-reload
  restart "the usual watchdog"
  alice_lists || fail "another catalog after the watchdog"
}

has_tcp() {
  say 'rejects a public port without TLS, and serves a local port'
  systemctl stop caproot.socket caproot.service
  systemctl start caproot.socket caproot-tcp.socket || fail "no port"
  ! systemctl start caproot.service 2>/dev/null || fail "the daemon serves a public port without TLS"
  [[ $(property ExecMainStatus) == 78 ]] || fail "the exit code is not 78"
  until_true 20 log_has 'LISTEN_FDS: .*other machines could connect without TLS' || fail "the log does not name the cause"
  systemctl stop caproot-tcp.socket caproot.socket
  local here=/run/systemd/system/caproot-tcp.socket.d
  mkdir -p $here
  printf '[Socket]\nListenStream=\nListenStream=127.0.0.1:7420\n' >$here/here.conf
  systemctl daemon-reload
  # A TCP caller without a certificate matches no rule, so the rules are removed.
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

has_a_socket_of_its_own() {
  say 'gives a socket that the daemon creates to the group'
  sed -i '1i listen: ["unix:/run/caproot/own.sock"]' $config
  restart "a socket"
  owner_and_mode /run/caproot/own.sock 'caproot:caproot 660'
  as alice list --endpoint unix:/run/caproot/own.sock >"$log" 2>&1 || fail "a member of the group cannot connect"
  grep -q triage-logs "$log" || fail "no list over the socket of the daemon"
  sed -i 1d $config
  restart "without the socket"
}

upgrades() {
  say 'upgrades with a connected client and keeps the config'
  local pid inode
  echo '# by hand' >>$config
  pid=$(property MainPID) inode=$(stat -c %i $socket)
  as alice watch >/run/watched 2>&1 &
  until_true 20 grep -q ' = synced' /run/watched || fail "no stream"
  dpkg -i /opt/debs/new.deb >"$log" 2>&1 || fail "not upgraded"
  is_running || fail "the service does not run"
  [[ $(property MainPID) != "$pid" ]] || fail "the old daemon still runs"
  [[ $(stat -c %i $socket) == "$inode" ]] || fail "the socket was replaced"
  [[ $(tail -n 1 $config) == '# by hand' ]] || fail "the config was changed"
  alice_lists || fail "another catalog after the upgrade"
  until_true 20 eval '(($(grep -c " = synced" /run/watched) == 2))' || fail "the client does not come back"
  pkill -TERM -u alice -x caproot
  systemctl disable --now caproot.service caproot.socket 2>/dev/null
  dpkg -i /opt/debs/new.deb >"$log" 2>&1 || fail "not installed again"
  [[ $(systemctl is-enabled caproot.service) == disabled ]] || fail "the upgrade enabled a disabled service"
  systemctl enable --now caproot.service caproot.socket 2>/dev/null
}

reads_homes() {
  say 'reads home directories if a drop-in allows it'
  mkdir -p /home/carol/skills $drop_ins
  cp -r /srv/skills/demo /home/carol/skills/
  chmod -R a+rX /home/carol
  sed -i 's|path: /srv/skills/demo|path: /home/carol/skills/demo|' $config
  restart "a root in a home"
  status_has '(1 unavailable' || fail "homes are readable without the drop-in"
  printf '[Service]\nProtectHome=read-only\n' >$drop_ins/homes.conf
  systemctl daemon-reload
  restart "a drop-in"
  alice_lists || fail "homes are not readable with the drop-in"
  rm $drop_ins/homes.conf
  systemctl daemon-reload
}

serves_a_user() {
  say "serves a user's skills from the service manager of the user"
  mkdir -p /home/alice/.agents/skills
  cp -r /srv/skills/demo /home/alice/.agents/skills/
  chown -R alice: /home/alice
  systemctl start person || fail "no user service manager"
  local as_user=(runuser -u alice -- env XDG_RUNTIME_DIR=/run/user/64910 HOME=/home/alice)
  until_true 20 "${as_user[@]}" systemctl --user is-system-running --wait
  "${as_user[@]}" systemctl --user start caproot.socket >"$log" 2>&1 || fail "no user socket"
  owner_and_mode /run/user/64910/caproot.sock 'alice:alice 600'
  "${as_user[@]}" caproot list --endpoint unix:/run/user/64910/caproot.sock >"$log" 2>&1
  [[ $(grep -c 'triage-logs *user' "$log") == 1 && $(grep -c triage-logs "$log") == 1 ]] || {
    "${as_user[@]}" systemctl --user --no-pager status caproot >&2
    fail "the user's skills are not listed once"
  }
  "${as_user[@]}" systemctl --user stop caproot.service caproot.socket || fail "the service does not stop"
  systemctl stop person
}

purges() {
  say 'leaves nothing but its user after a purge'
  dpkg -r caproot >"$log" 2>&1 || fail "not removed"
  [[ $(property ActiveState) == inactive && ! -e $socket ]] || fail "the service still runs"
  [[ -e $config ]] || fail "the config was removed before the purge"
  dpkg -P caproot >"$log" 2>&1 || fail "not purged"
  local left
  left=$(ls -d /etc/caproot /run/caproot /usr/bin/caproot /etc/systemd/system/*/caproot* 2>/dev/null)
  [[ -z $left ]] || fail "left: $left"
}

# bash reads this script from stdin, so the commands get another stdin.
{
  exec </dev/null
  installs
  is_sandboxed
  serves
  follows
  reloads
  rejects_shared_tokens
  stops
  heals
  has_tcp
  has_a_socket_of_its_own
  upgrades
  reads_homes
  serves_a_user
  purges
  exit 0
}
