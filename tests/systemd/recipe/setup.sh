# Sourced in the repository before the boot, with `root` as the new root directory. Installs a checkout
# with the recipe and old.deb from the directory `CAPROOT_DEBS`, users, a name for the executor, and
# grpcurl if `CAPROOT_GRPCURL` is its path.
deb=$CAPROOT_DEBS/old.deb checkout=$root/opt/checkout
install -D -m 0644 "$deb" \
  "$checkout/target/debian/$(dpkg-deb --show --showformat '${Package}_${Version}_${Architecture}' "$deb").deb"
mkdir -p "$checkout/tests/trees"
cp -r tests/trees/demo "$checkout/tests/trees/demo"
cp docs/operate/recipe.md tests/foreign/docs_page.py tests/systemd/recipe/run_page.py "$checkout"
# In container images, policy-rc.d keeps packages from starting services. A previous installation may
# have left /etc/caproot.
rm -rf "$root/usr/sbin/policy-rc.d" "$root/etc/caproot" "$root/srv/skills"
# The index of manual pages takes longer than the whole test.
rm -f "$root/var/lib/man-db/auto-update"
# A script replaces a missing sudo. The page uses only its option `-u USER`.
[[ -x $root/usr/bin/sudo ]] || install -D -m 0755 /dev/stdin "$root/usr/local/bin/sudo" <<'SUDO'
#!/bin/sh
[ "$1" = -u ] || exec "$@"
user=$2
shift 2
exec runuser -u "$user" -- "$@"
SUDO
[[ -z ${CAPROOT_GRPCURL-} ]] || install -m 0755 "$CAPROOT_GRPCURL" "$root/usr/local/bin/grpcurl"
id=64920
for name in codex bob; do
  echo "$name:x:$id:$id::/home/$name:/bin/bash" >>"$root/etc/passwd"
  echo "$name:x:$id:" >>"$root/etc/group"
  id=$((id + 1))
done
echo "agents:x:$id:" >>"$root/etc/group"
# The machine's file may be a mount, so this is a new file.
rm -f "$root/etc/hosts"
echo '127.0.0.1 localhost executor.example.org' >"$root/etc/hosts"
