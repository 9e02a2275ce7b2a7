# Sourced before the boot, in the repository, with `root` as the new root: brings the packages of the
# directory that `CAPROOT_DEBS` names, old.deb and new.deb, callers, and skills to publish.
install -D -m 0644 -t "$root/opt/debs" "$CAPROOT_DEBS"/old.deb "$CAPROOT_DEBS"/new.deb
# On images of containers it keeps packages from starting anything; and what packages of this name left
# is not to be seen.
rm -rf "$root/usr/sbin/policy-rc.d" "$root/etc/caproot"
# Indexes of manual pages take longer than all of the test.
rm -f "$root/var/lib/man-db/auto-update"
id=64910
for name in alice bob carol; do
  echo "$name:x:$id:$id::/home/$name:/bin/bash" >>"$root/etc/passwd"
  echo "$name:x:$id:" >>"$root/etc/group"
  mkdir -p "$root/home/$name"
  chown "$id:$id" "$root/home/$name"
  id=$((id + 1))
done
mkdir -p "$root/srv/skills"
cp -r tests/trees/demo "$root/srv/skills/demo"
chmod -R a+rX "$root/srv"
