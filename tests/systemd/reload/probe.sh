# Run in the booted system: reloads under the units, with a stream, a read and a queued connection open.
config=/etc/caproot/caproot.yaml log=/run/probe.log large=references/large.bin

fail() {
  echo "reload: $*" >&2
  { systemctl --no-pager status caproot; journalctl --no-pager -u caproot | tail -n 60; cat "$log"; } >&2
  exit 1
}
say() { echo "== $*"; }
property() { systemctl show --property="$1" --value caproot.service; }
as_alice() { runuser -u alice -- caproot "$@" --endpoint unix:/run/caproot/caproot.sock; }
# until_true SECONDS COMMAND…: waits for a command to succeed.
until_true() {
  local end=$((SECONDS + $1))
  while ! "${@:2}" &>/dev/null; do
    ((SECONDS < end)) || return 1
    sleep 0.1
  done
}
runs() { [[ $(property ActiveState) == active && $(property SubState) == running ]]; }
told() { property StatusText | grep -q "$1"; }
in_step() { (($(grep -c ' = in step' /run/watched) == $1)); }
# Connections to the socket, accepted or queued.
connections() { grep -c '/run/caproot/caproot.sock$' /proc/net/unix; }

advises() {
  say 'warns about a directory that only root can read'
  mkdir -m 0700 /opt/closed
  echo 'allow: [/opt/closed, /opt/more]' >/run/check.yaml
  caproot config check /run/check.yaml >"$log" || fail "the file is refused"
  grep -q '^warning: allow: /opt/closed cannot be read by the user caproot' "$log" || fail "no warning"
  ! grep -q '/opt/more' "$log" || fail "a warning about a readable directory"
}

begins() {
  systemctl start caproot.socket caproot.service || fail "it does not start"
  as_alice watch >/run/watched 2>&1 &
  until_true 20 in_step 1 || fail "no stream"
  watching=$(pgrep -u alice -x caproot) || fail "no client holds the stream"
  mkfifo /run/large
  as_alice read "skill://demo/triage-logs/$large" >/run/large 2>"$log" &
  reading=$!
  exec 5</run/large
  # The read has begun, and goes on when the rest is taken.
  head -c 1 <&5 >/run/first || fail "no read"
}

applies() {
  say 'applies a key that needs no new process'
  echo 'disabled_skills: [{name: write-changelog}]' >>$config
  systemctl reload caproot || fail "no reload"
  until_true 20 eval '! as_alice list | grep -q write-changelog' || fail "not applied"
  [[ $(property MainPID) == "$pid" ]] || fail "it was started again"
}

refuses() {
  say 'refuses a file that a new process would refuse'
  cp $config /run/good.yaml
  printf 'allow: [/opt/more]\nlimts: {}\n' >>$config
  systemctl reload caproot || fail "no reload of a bad file"
  until_true 20 told 'the new config was rejected: .*limts' || fail "it does not say why"
  # The running daemon cannot read this directory, nor find that there is no certificate in it.
  mkdir -p /opt/tls
  { cat /run/good.yaml; echo 'tls: {certificate: /opt/tls/no.pem, key: /opt/tls/no.key}'; } >$config
  systemctl reload caproot || fail "no reload of a bad certificate"
  until_true 20 told 'the new config was rejected: .*no.pem' || fail "it does not say what is missing"
  runs && [[ $(property MainPID) == "$pid" && $(property NRestarts) == 0 ]] || fail "it ended"
  in_step 1 || fail "the stream ended"
}

starts_again() {
  say 'starts again for a directory outside the sandbox'
  local socket queued before
  socket=$(stat -c %i /run/caproot/caproot.sock)
  { cat /run/good.yaml; echo 'allow: [/opt/more]'; } >$config
  # A client that takes no notice holds the old process in its drain.
  kill -STOP "$watching"
  # The job may last as long as the old process.
  systemctl reload caproot &
  local job=$!
  until_true 20 eval 'journalctl -u caproot | grep -q "caproot::server: stopping"' || fail "it does not end"
  before=$(connections)
  as_alice list --root /opt/more/demo >/run/listed 2>>"$log" &
  queued=$!
  until_true 20 eval '(($(connections) > before))' || fail "the client is not queued"
  [[ $(property MainPID) == "$pid" ]] && kill -0 "$pid" || fail "the old process is gone too early"
  kill -CONT "$watching"
  wait "$job" || fail "the reload counts as failed"
  wait "$queued" || fail "the queued client got no answer: $?"
  grep -q triage-logs /run/listed || fail "the new directory is not served"
  until_true 20 runs && [[ $(property MainPID) != "$pid" && $(property NRestarts) == 1 ]] || fail "it was not started again"
  [[ $(property Result) == success ]] || fail "it counts as failed: $(property Result)"
  journalctl -u caproot | grep -q 'restarting to apply: allow' || fail "it does not say why"
  [[ $(stat -c %i /run/caproot/caproot.sock) == "$socket" ]] || fail "the socket is another"
  until_true 20 in_step 2 || fail "the stream does not come back"
  cat /run/first - <&5 >/run/read
  wait "$reading" || fail "the read failed: $?"
  cmp /run/read "/srv/skills/demo/triage-logs/$large" || fail "the read has other bytes"
  systemctl stop caproot.socket caproot.service || fail "it does not stop"
  [[ $(property Result) == success ]] || fail "it did not end well"
  [[ -z $(pgrep -u caproot) ]] || fail "a process is left"
}

# This text comes by stdin, from which the commands are kept.
{
  exec </dev/null
  advises
  begins
  pid=$(property MainPID)
  applies
  refuses
  starts_again
  exit 0
}
