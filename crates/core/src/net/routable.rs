//! Addresses that are reachable from the whole internet. A program that follows a URL of untrusted text
//! connects to no other address, because others are machines of the local network.

use std::net::IpAddr;

/// Whether an address is globally routable. Source: the IANA IPv4 and IPv6 Special-Purpose Address
/// Registries. Multicast addresses are not.
fn is_globally_routable(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let is_special = v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_documentation()
                || v4.is_multicast();

            !is_special
                && !matches!(
                    v4.octets(),
                    [0 | 240.., ..]
                        | [100, 64..=127, ..]
                        | [192, 0, 0, _]
                        | [192, 88, 99, _]
                        | [198, 18 | 19, ..]
                )
        }

        IpAddr::V6(v6) => match v6.segments() {
            // 2001::/23, 2001:db8::/32 and 3fff::/20. 2002::/16 has IPv4 addresses inside.
            [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
            // The global unicast addresses are 2000::/3.
            [first, ..] => (0x2000..=0x3fff).contains(&first),
        },
    }
}

/// Checks that an address is globally routable. Errors are the end of a sentence.
///
/// # Errors
///
/// An address of this machine, of a local network or of a special purpose.
pub fn check_globally_routable(address: IpAddr) -> Result<(), String> {
    if is_globally_routable(address) {
        return Ok(());
    }
    Err(format!("{address} is not a globally routable address"))
}

#[cfg(test)]
mod tests {
    use super::is_globally_routable;

    #[test]
    fn only_global_addresses_are_accepted() {
        for global in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "172.32.0.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:1.1.1.1",
        ] {
            assert!(
                is_globally_routable(global.parse().expect("an address")),
                "{global}"
            );
        }
        for special in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.19.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "fc00::1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(
                !is_globally_routable(special.parse().expect("an address")),
                "{special}"
            );
        }
    }
}
