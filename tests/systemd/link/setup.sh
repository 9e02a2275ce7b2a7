# Sourced in the repository before the boot, with `root` as the new root directory. Installs the binary
# `CAPROOT` at the path in the units, the files of docs/operate/link.md, and their certificates.
install -D -m 0755 "${CAPROOT:-target/debug/caproot}" "$root/usr/bin/caproot"
printf '%s\n' 'caproot:x:64901:64901::/nonexistent:/usr/sbin/nologin' \
  'caproot-link:x:64902:64902::/nonexistent:/usr/sbin/nologin' >>"$root/etc/passwd"
printf '%s\n' 'caproot:x:64901:' 'caproot-link:x:64902:' >>"$root/etc/group"
mkdir -p "$root/srv/skills" "$root/etc/caproot" "$root/etc/caproot-link" "$root/etc/nats" "$root/etc/fleet" \
  "$root/etc/systemd/system/caproot-tcp.socket.d"
cp -r tests/trees/demo "$root/srv/skills/demo"
chmod -R a+rX "$root/srv"
# block NAME: prints a file of the page.
block() { sed -n "/<!-- file $1 -->/,/^\`\`\`\$/p" docs/operate/link.md | sed '1,2d;$d'; }
block nats.conf >"$root/etc/nats-server.conf"
block caproot.yaml | sed '/^listen:/d' >"$root/etc/caproot/caproot.yaml"
block link.yaml | sed 's/nats.example/localhost/' >"$root/etc/caproot-link/link.yaml"
block fleet.yaml | sed 's/nats.example/localhost/' >"$root/etc/fleet/fleet.yaml"
block loopback.conf >"$root/etc/systemd/system/caproot-tcp.socket.d/loopback.conf"
new=(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2)
"${new[@]}" -subj /CN=CA -keyout "$work/ca.key" -out "$work/ca.pem"
# certificate FILE NAMES: issues FILE.pem and FILE.key.
certificate() {
  "${new[@]}" -CA "$work/ca.pem" -CAkey "$work/ca.key" -subj /CN=test -keyout "$root/etc/$1.key" \
    -out "$root/etc/$1.pem" -addext "subjectAltName=$2" -addext basicConstraints=critical,CA:FALSE
}
certificate nats/server DNS:localhost
certificate caproot/one URI:spiffe://example.org/executor/one
certificate caproot-link/link URI:spiffe://example.org/executor/one
certificate fleet/client URI:spiffe://example.org/orchestrator
for dir in nats caproot caproot-link fleet; do cp "$work/ca.pem" "$root/etc/$dir/ca.pem"; done
chown 64901 "$root/etc/caproot/one.key"
chgrp -R 64902 "$root/etc/caproot-link"
chmod -R u=rwX,g=rX,o= "$root/etc/caproot-link"
