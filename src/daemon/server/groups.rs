//! Supplementary groups of the peer of a Unix socket. No safe library reads `SO_PEERGROUPS`, and
//! `SO_PEERCRED` has only the primary group.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _};

/// `NGROUPS_MAX` of the kernel.
const MAX_GROUPS: usize = 65_536;

/// Returns the groups that the peer had when it connected, by `SO_PEERGROUPS` of socket(7).
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let fd = socket.as_fd();
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut bytes = libc::socklen_t::try_from(size_of::<libc::gid_t>() * groups.len())
            .map_err(io::Error::other)?;

        // SAFETY: `groups` is a live buffer of `bytes` bytes, and a gid_t may hold any bits.
        let result = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };

        if result == 0 {
            groups.truncate(bytes as usize / size_of::<libc::gid_t>());
            return Ok(groups);
        }

        match io::Error::last_os_error() {
            error if error.raw_os_error() != Some(libc::ERANGE) => return Err(error),
            error if groups.len() >= MAX_GROUPS => return Err(error),
            _ => groups.resize(MAX_GROUPS, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn groups_of_an_own_peer_are_our_own() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("pair");
        let own = rustix::process::getgroups().expect("groups");
        let own: Vec<_> = own.into_iter().map(rustix::fs::Gid::as_raw).collect();
        assert_eq!(super::peer_groups(&ours).expect("groups"), own);
    }
}
