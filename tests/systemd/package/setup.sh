# Sourced in the repository before the boot, with `root` as the new root directory. Installs old.deb and
# new.deb from the directory `CAPROOT_DEBS`, users, and skills to publish.
install -D -m 0644 -t "$root/opt/debs" "$CAPROOT_DEBS"/old.deb "$CAPROOT_DEBS"/new.deb
# In container images, policy-rc.d keeps packages from starting services. A previous installation may
# have left /etc/caproot.
rm -rf "$root/usr/sbin/policy-rc.d" "$root/etc/caproot"
# The index of manual pages takes longer than the whole test.
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
