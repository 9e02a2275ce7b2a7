# Runs in the booted system. Tests reloads with an open stream, an open read and a queued connection.
large=references/large.bin

as_alice() { as alice "$@" --endpoint unix:$socket; }
streams_synced() { (($(grep -c ' = synced' /run/watched) == $1)); }
# Prints the number of connections to the socket, accepted or queued.
connections() { grep -c "$socket\$" /proc/net/unix; }

warns() {
  say 'warns about a directory that only root can read'
  mkdir -m 0700 /opt/closed
  echo 'allow: [/opt/closed, /opt/more]' >/run/check.yaml
  caproot config check /run/check.yaml >"$log" || fail "the file was rejected"
  grep -q '^warning: allow: /opt/closed cannot be read by the user caproot' "$log" || fail "no warning"
  ! grep -q '/opt/more' "$log" || fail "a warning about a readable directory"
}

starts() {
  systemctl start caproot.socket caproot.service || fail "the service does not start"
  as_alice watch >/run/watched 2>&1 &
  until_true 20 streams_synced 1 || fail "no stream"
  watching=$(pgrep -u alice -x caproot) || fail "no client has the stream"
  mkfifo /run/large
  as_alice read "skill://demo/triage-logs/$large" >/run/large 2>"$log" &
  reading=$!
  exec 5</run/large
  # The read has started, and continues when the rest is read.
  head -c 1 <&5 >/run/first || fail "no read"
}

applies() {
  say 'applies a key that needs no restart'
  echo 'disabled_skills: [{name: write-changelog}]' >>$config
  systemctl reload caproot || fail "no reload"
  until_true 20 eval '! as_alice list | grep -q write-changelog' || fail "not applied"
  [[ $(property MainPID) == "$pid" ]] || fail "the daemon was restarted"
}

rejects() {
  say 'rejects a file that a new process would reject'
  cp $config /run/good.yaml
  printf 'allow: [/opt/more]\nlimts: {}\n' >>$config
  systemctl reload caproot || fail "no reload of a bad file"
  until_true 20 status_has 'the new config was rejected: .*limts' || fail "the status does not name the key"
  # The running daemon cannot read this directory, so a new process must find the missing certificate.
  mkdir -p /opt/tls
  { cat /run/good.yaml; echo 'tls: {certificate: /opt/tls/no.pem, key: /opt/tls/no.key}'; } >$config
  systemctl reload caproot || fail "no reload of a bad certificate"
  until_true 20 status_has 'the new config was rejected: .*no.pem' || fail "the status does not name the missing file"
  is_running && [[ $(property MainPID) == "$pid" && $(property NRestarts) == 0 ]] || fail "the daemon was restarted"
  streams_synced 1 || fail "the stream ended"
}

restarts() {
  say 'restarts for a directory outside the sandbox'
  local inode queued before
  inode=$(stat -c %i $socket)
  { cat /run/good.yaml; echo 'allow: [/opt/more]'; } >$config
  # A client that does not read keeps the old process draining.
  kill -STOP "$watching"
  # The job may run until the old process ends.
  systemctl reload caproot &
  local job=$!
  until_true 20 eval 'journalctl -u caproot | grep -q "caproot::daemon::server: stopping"' || fail "the daemon does not stop"
  before=$(connections)
  as_alice list --root /opt/more/demo >/run/listed 2>>"$log" &
  queued=$!
  until_true 20 eval '(($(connections) > before))' || fail "the client is not queued"
  [[ $(property MainPID) == "$pid" ]] && kill -0 "$pid" || fail "the old process ended too early"
  kill -CONT "$watching"
  wait "$job" || fail "the reload failed"
  wait "$queued" || fail "the queued client got no answer: $?"
  grep -q triage-logs /run/listed || fail "the new directory is not served"
  until_true 20 is_running && [[ $(property MainPID) != "$pid" && $(property NRestarts) == 1 ]] || fail "the daemon was not restarted"
  [[ $(property Result) == success ]] || fail "the service failed: $(property Result)"
  journalctl -u caproot | grep -q 'restarting to apply: allow' || fail "the log does not name the key"
  [[ $(stat -c %i $socket) == "$inode" ]] || fail "the socket was replaced"
  until_true 20 streams_synced 2 || fail "the stream does not come back"
  cat /run/first - <&5 >/run/read
  wait "$reading" || fail "the read failed: $?"
  cmp /run/read "/srv/skills/demo/triage-logs/$large" || fail "the read has other bytes"

  # systemd rejects `reload` between the end of the old process and the start of the new one.
  cp -r /opt/more /opt/other
  { cat /run/good.yaml; echo 'allow: [/opt/other]'; } >$config
  systemctl reload caproot || fail "the second reload failed"
  systemctl reload-or-restart caproot || fail "a reload during a restart failed"
  as_alice list --root /opt/other/demo | grep -q triage-logs || fail "the second directory is not served"

  systemctl stop caproot.socket caproot.service || fail "the service does not stop"
  [[ $(property Result) == success ]] || fail "the daemon did not exit cleanly"
  [[ -z $(pgrep -u caproot) ]] || fail "a process is left"
}

# bash reads this script from stdin, so the commands get another stdin.
{
  exec </dev/null
  warns
  starts
  pid=$(property MainPID)
  applies
  rejects
  restarts
  exit 0
}
