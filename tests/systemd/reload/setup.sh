# Sourced in the repository before the boot, with `root` as the new root directory. Installs the binary
# `CAPROOT` at the path in the units, users, a config file, and two directories of skills.
install -D -m 0755 "${CAPROOT:-target/debug/caproot}" "$root/usr/bin/caproot"
echo 'caproot:x:64901:64901::/nonexistent:/usr/sbin/nologin' >>"$root/etc/passwd"
echo 'caproot:x:64901:alice' >>"$root/etc/group"
echo 'alice:x:64910:64910::/nonexistent:/bin/bash' >>"$root/etc/passwd"
echo 'alice:x:64910:' >>"$root/etc/group"
mkdir -p "$root/srv/skills" "$root/opt/more" "$root/etc/caproot"
cp -r tests/trees/demo "$root/srv/skills/demo"
cp -r tests/trees/demo "$root/opt/more/demo"
# This file is larger than the buffers between the daemon and a client.
head -c 48000000 /dev/urandom >"$root/srv/skills/demo/triage-logs/references/large.bin"
chmod -R a+rX "$root/srv" "$root/opt/more"
echo 'roots: [{id: demo, path: /srv/skills/demo}]' >"$root/etc/caproot/caproot.yaml"
