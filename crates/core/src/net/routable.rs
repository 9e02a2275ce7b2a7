//! Addresses that are reachable from the whole internet. A program that follows a URL of untrusted text
//! connects to no other address, because others are machines of the local network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Range of addresses with a common prefix. An IPv4 address has the number of its IPv6 form
/// `::ffff:0:0/96`.
struct AddressRange {
    prefix: u128,
    /// Length of the prefix in bits.
    bits: u32,
}

impl AddressRange {
    const fn v4(octets: [u8; 4], bits: u32) -> Self {
        let mapped = Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).to_ipv6_mapped();
        Self {
            prefix: mapped.to_bits(),
            bits: 96 + bits,
        }
    }

    const fn v6(first: u16, second: u16, bits: u32) -> Self {
        Self {
            prefix: ((first as u128) << 112) | ((second as u128) << 96),
            bits,
        }
    }

    fn contains(&self, address: Ipv6Addr) -> bool {
        (address.to_bits() ^ self.prefix) >> (128 - self.bits) == 0
    }
}

/// Networks that have globally routable addresses: all of IPv4, and the global unicast addresses of
/// IPv6.
const ROUTABLE: [AddressRange; 2] = [
    AddressRange::v4([0, 0, 0, 0], 0),
    AddressRange::v6(0x2000, 0, 3),
];

/// Networks inside the routable ones that are not globally routable: the IANA IPv4 and IPv6 Special-Purpose
/// Address Registries, and multicast. `2002::/16` has IPv4 addresses inside.
const SPECIAL: [AddressRange; 19] = [
    AddressRange::v4([0, 0, 0, 0], 8),
    AddressRange::v4([10, 0, 0, 0], 8),
    AddressRange::v4([100, 64, 0, 0], 10),
    AddressRange::v4([127, 0, 0, 0], 8),
    AddressRange::v4([169, 254, 0, 0], 16),
    AddressRange::v4([172, 16, 0, 0], 12),
    AddressRange::v4([192, 0, 0, 0], 24),
    AddressRange::v4([192, 0, 2, 0], 24),
    AddressRange::v4([192, 88, 99, 0], 24),
    AddressRange::v4([192, 168, 0, 0], 16),
    AddressRange::v4([198, 18, 0, 0], 15),
    AddressRange::v4([198, 51, 100, 0], 24),
    AddressRange::v4([203, 0, 113, 0], 24),
    AddressRange::v4([224, 0, 0, 0], 4),
    AddressRange::v4([240, 0, 0, 0], 4),
    AddressRange::v6(0x2001, 0, 23),
    AddressRange::v6(0x2001, 0xdb8, 32),
    AddressRange::v6(0x2002, 0, 16),
    AddressRange::v6(0x3fff, 0, 20),
];

/// Returns whether an address is globally routable.
#[must_use]
pub fn is_globally_routable(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    ROUTABLE.iter().any(|network| network.contains(address))
        && !SPECIAL.iter().any(|network| network.contains(address))
}

/// Checks that an address is globally routable. Errors are the end of a sentence.
///
/// # Errors
///
/// An address of this machine, of a local network or of a special purpose.
pub fn check_globally_routable(address: IpAddr) -> Result<(), String> {
    if is_globally_routable(address) {
        Ok(())
    } else {
        Err(format!("{address} is not a globally routable address"))
    }
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
