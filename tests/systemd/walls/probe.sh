# Run in the booted system: the daemon's walls, seen from inside a unit.
fail() { echo "walls: $*" >&2; exit 1; }

# Behind them, nothing works of what is tried.
systemctl start caproot-walls@required || { cat /run/walls-required*; fail "the walls have holes"; }
cat /run/walls-required
(($(wc -l </run/walls-required) >= 7)) || fail "too little was tried"
! grep -v '"refused":true' /run/walls-required || fail "that was not refused"

# Without them, the unit alone does not deny it.
systemctl start caproot-walls@off && fail "nothing was possible without walls"
for tried in 'read a file outside' 'execute /bin/true' 'connect by TCP'; do
  grep -F "\"attempt\":\"$tried\"" /run/walls-off | grep -qF '"refused":false' ||
    { cat /run/walls-off*; fail "the unit alone denies: $tried"; }
done

# A daemon behind them serves, holds no capability, and ends well.
client() { runuser -u caproot -- caproot "$@" --endpoint unix:/run/caproot/caproot.sock; }
systemctl start caproot || { cat /run/caproot.log; fail "the daemon does not start"; }
# It listens a moment after it was executed.
for _ in {1..100}; do [[ -S /run/caproot/caproot.sock ]] && break; sleep 0.1; done
client status | grep '^sandbox .*enforced.*no_new_privs' || fail "not enforced"
client list || fail "the daemon does not list"
of=/proc/$(systemctl show --property=MainPID --value caproot)
grep -E '^(Cap|NoNewPrivs|Uid)' "$of/status"
! grep -E '^Cap(Eff|Prm|Bnd|Amb):' "$of/status" | grep -qv '0000000000000000$' ||
  fail "it holds capabilities"
grep -qx $'NoNewPrivs:\t1' "$of/status" || fail "it could gain privileges"
systemctl stop caproot
[[ $(systemctl show --property=Result --value caproot) == success ]] ||
  { cat /run/caproot.log; fail "the daemon did not end well"; }
[[ ! -e /run/caproot/caproot.sock ]] || fail "the socket is still there"
