//! Mounts in the mount namespace of a process. Source: `proc_pid_mountinfo(5)`.

/// Mount of a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MountEntry {
    /// Mount id, parent id, device and root.
    pub identity: Box<[u8]>,
    /// Absolute path in raw bytes.
    pub mount_point: Box<[u8]>,
}

/// Parses the text of `/proc/PID/mountinfo`. Invalid lines are omitted.
pub fn parse_mountinfo(text: &[u8]) -> impl Iterator<Item = MountEntry> {
    text.split(|b| *b == b'\n').filter_map(parse_mount_line)
}

/// Parses a line: `36 35 98:0 /root /mount/point …`.
fn parse_mount_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.splitn(6, |b| *b == b' ');
    let identity: Vec<_> = fields.by_ref().take(4).collect();
    let mount_point = fields.next()?;
    fields.next()?;
    Some(MountEntry {
        identity: identity.join(&b' ').into(),
        mount_point: unescape_octal(mount_point).into(),
    })
}

/// Decodes escapes of three octal digits, such as `\040` for a space.
fn unescape_octal(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let code = tail.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            bytes.push(byte);
            rest = &tail[3..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{MountEntry, parse_mount_line};

    #[test]
    fn mount_line_is_parsed() {
        let line = br"36 35 98:0 /mnt1 /mnt\0402/\134x rw,noatime master:1 - ext3 /dev/root rw";
        let entry = MountEntry {
            identity: (*b"36 35 98:0 /mnt1").into(),
            mount_point: (*br"/mnt 2/\x").into(),
        };
        assert_eq!(parse_mount_line(line), Some(entry));
        assert_eq!(parse_mount_line(b""), None);
        assert_eq!(parse_mount_line(b"36 35 98:0 /mnt1 /mnt2"), None);
    }
}
