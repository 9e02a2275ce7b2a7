# Runs in the booted system. Runs the commands of the recipe, and checks the facts that the page states.
remote=(--endpoint tls:executor.example.org:7420 --ca ca.pem)

# fails_with CODE TEXT COMMAND…: runs a command that must fail with this exit code and text.
fails_with() {
  "${@:3}" >"$log" 2>&1
  local code=$?
  ((code == $1)) && grep -q "$2" "$log" || fail "exit code $code instead of $1 with '$2': ${*:3}"
}
# Restarts the socket too, because a running socket keeps its group.
restart_all() {
  systemctl daemon-reload
  systemctl stop caproot.socket caproot-tcp.socket caproot.service
  systemctl start caproot.socket caproot-tcp.socket caproot.service || fail "no restart after $1"
}

follows_the_page() {
  say 'follows the page'
  : >"$log"
  python3 run_page.py recipe.md || fail "the page and the system differ"
}

has_the_result() {
  say 'admits the callers of the page, and no others'
  as codex list >"$log" 2>&1 && grep -q '^3 skills in 1 root$' "$log" || fail "codex gets no list"
  fails_with 1 NOT_ALLOWED as codex list --root /etc
  fails_with 5 'may not use the socket' as bob list
  caproot resolve --published >"$log" 2>&1 || fail "the operator is locked out"
  fails_with 5 'requires a client certificate' caproot list "${remote[@]}"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -CA ca.pem -CAkey ca.key \
    -subj /CN=other -addext subjectAltName=URI:spiffe://example.org/other \
    -addext basicConstraints=critical,CA:FALSE -keyout other.key -out other.pem 2>/dev/null
  fails_with 5 CALLER_NOT_ALLOWED caproot list "${remote[@]}" --cert other.pem --key other.key
  until_true 20 log_has 'access denied .*spiffe://example.org/other' || fail "the log does not name the certificate"
}

hides_the_key() {
  say 'lets only the daemon read the key'
  local user
  for user in codex bob; do
    ! runuser -u $user -- cat /etc/caproot/server.key 2>/dev/null || fail "$user reads the key"
  done
  runuser -u caproot -- cat /etc/caproot/server.key >/dev/null || fail "the daemon cannot read the key"
}

sets_the_group() {
  say 'gives the socket another group by a drop-in, and not by the config'
  printf 'socket: {group: agents}\n' >>$config
  restart_all "socket.group"
  owner_and_mode $socket 'root:caproot 660'
  until_true 20 log_has 'socket. has no effect: systemd passed the sockets' || fail "no warning"
  sed -i '$d' $config
  mkdir -p /run/systemd/system/caproot.socket.d
  printf '[Socket]\nSocketGroup=agents\n' >/run/systemd/system/caproot.socket.d/group.conf
  restart_all "SocketGroup="
  owner_and_mode $socket 'root:agents 660'
  fails_with 5 'may not use the socket' as codex list
  rm -r /run/systemd/system/caproot.socket.d
  restart_all "the usual group"
}

locks_out_the_operator() {
  say 'denies root if no rule names root'
  sed -i '/name: operator/,+1d' $config
  caproot config check $config >"$log" || fail "an invalid config"
  systemctl reload caproot || fail "no reload"
  until_true 20 eval '! caproot resolve --published' || fail "root may call without a rule"
  fails_with 5 CALLER_NOT_ALLOWED caproot resolve --published
}

replaces_the_default_root() {
  say 'publishes the default root only without roots and allow'
  systemctl disable --now caproot-tcp.socket caproot.service 2>/dev/null
  mkdir -p /etc/codex
  cp -r tests/trees/demo /etc/codex/skills
  local keys
  for keys in 'roots: [{id: team, path: /srv/skills}]' 'allow: [/srv/skills]'; do
    echo "$keys" >$config
    systemctl restart caproot || fail "no restart with $keys"
    caproot resolve --published >"$log" 2>&1 || fail "no roots with $keys"
    ! grep -q '^admin' "$log" || fail "the default root is published with $keys"
  done
  : >$config
  systemctl restart caproot || fail "no restart without keys"
  caproot resolve --published >"$log" 2>&1 && grep -q '^admin *ADMIN *READY$' "$log" || fail "the default root is not published"
}

# bash reads this script from stdin, so the commands get another stdin.
{
  exec </dev/null
  cd /opt/checkout || exit 1
  follows_the_page
  has_the_result
  hides_the_key
  sets_the_group
  locks_out_the_operator
  replaces_the_default_root
  exit 0
}
