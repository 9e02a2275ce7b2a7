# Runs in the booted system and checks the daemon's sandbox from inside a unit.
fail() { echo "sandbox: $*" >&2; exit 1; }

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
client() { runuser -u caproot -- caproot "$@" --endpoint unix:/run/caproot/caproot.sock; }
systemctl start caproot || { cat /run/caproot.log; fail "the daemon does not start"; }
# The daemon listens a moment after its start.
for _ in {1..100}; do [[ -S /run/caproot/caproot.sock ]] && break; sleep 0.1; done
client status | grep '^sandbox .*enforced.*no_new_privs' || fail "not enforced"
client list || fail "the daemon does not list"
of=/proc/$(systemctl show --property=MainPID --value caproot)
grep -E '^(Cap|NoNewPrivs|Uid)' "$of/status"
! grep -E '^Cap(Eff|Prm|Bnd|Amb):' "$of/status" | grep -qv '0000000000000000$' ||
  fail "the daemon has capabilities"
grep -qx $'NoNewPrivs:\t1' "$of/status" || fail "the daemon could gain privileges"
systemctl stop caproot
[[ $(systemctl show --property=Result --value caproot) == success ]] ||
  { cat /run/caproot.log; fail "the daemon did not exit cleanly"; }
[[ ! -e /run/caproot/caproot.sock ]] || fail "the socket is still there"
