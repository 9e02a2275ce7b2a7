# Sourced in the repository before the boot, with `root` as the new root directory. Installs the
# binary `CAPROOT`, the example `SANDBOX_PROBE`, a user, skills to publish, and a world-readable file
# outside the skills.
install -D -m 0755 "${CAPROOT:-target/debug/caproot}" "$root/usr/local/bin/caproot"
install -m 0755 "${SANDBOX_PROBE:-target/debug/examples/sandbox_probe}" "$root/usr/local/bin/sandbox_probe"
echo 'caproot:x:64901:64901::/nonexistent:/usr/sbin/nologin' >>"$root/etc/passwd"
echo 'caproot:x:64901:' >>"$root/etc/group"
mkdir -p "$root/srv/skills" "$root/opt/outside"
cp -r tests/trees/demo "$root/srv/skills/demo"
chmod -R a+rX "$root/srv/skills"
echo 'for everybody' >"$root/opt/outside/readable"
chmod 0755 "$root/opt/outside"
chmod 0644 "$root/opt/outside/readable"
