# Runs in the booted system and checks the daemon's sandbox from inside a unit.
log=/run/caproot.log

# The sandbox denies all actions.
systemctl start caproot-sandbox@required || { cat /run/sandbox-required*; fail "the sandbox has gaps"; }
cat /run/sandbox-required
(($(wc -l </run/sandbox-required) >= 7)) || fail "too few actions were attempted"
! grep -v '"refused":true' /run/sandbox-required || fail "an action was not denied"

# Without the sandbox, the unit does not deny the actions.
systemctl start caproot-sandbox@off && fail "all actions were denied without the sandbox"
for tried in 'read a file outside' 'execute /bin/true' 'connect by TCP'; do
  grep -F "\"attempt\":\"$tried\"" /run/sandbox-off | grep -qF '"refused":false' ||
    { cat /run/sandbox-off*; fail "the unit without the sandbox denies: $tried"; }
done

# A daemon in the sandbox serves, has no capability, and exits cleanly.
client() { as caproot "$@" --endpoint unix:$socket; }
systemctl start caproot || fail "the daemon does not start"
# The daemon listens a moment after its start.
until_true 10 test -S $socket || fail "the daemon does not listen"
client status | grep '^sandbox .*enforced.*no_new_privs' || fail "not enforced"
client list || fail "the daemon does not list"
pid=$(property MainPID)
grep -E '^(Cap|NoNewPrivs|Uid)' "/proc/$pid/status"
has_no_privileges "$pid" || fail "the daemon has a capability or could gain privileges"
systemctl stop caproot
[[ $(property Result) == success ]] || fail "the daemon did not exit cleanly"
[[ ! -e $socket ]] || fail "the socket is still there"
