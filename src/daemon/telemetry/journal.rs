//! Sends lines of the log to the journal of systemd. Source: "Native Journal Protocol" of systemd.

use serde_json::Value;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Socket of the journal.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";
/// Prefix of fields that the protocol does not define.
const FIELD_PREFIX: &str = "CAPROOT_";

/// Socket that sends entries to the journal.
#[derive(Debug)]
pub struct JournalSocket {
    socket: UnixDatagram,
    /// Name of the program.
    identifier: String,
}

impl JournalSocket {
    /// Opens a socket, and checks that there is a journal.
    pub fn open() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;

        // The journal ignores an empty datagram. A journal that is busy must not block the start.
        socket.set_nonblocking(true)?;
        match socket.send_to(&[], JOURNAL_SOCKET) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        socket.set_nonblocking(false)?;

        let program = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&program).file_name().map(OsStr::to_string_lossy);
        let identifier = name.unwrap_or_default().into_owned();
        Ok(Self { socket, identifier })
    }

    /// Sends a line that the JSON format of `tracing_subscriber` wrote. Blocks while the journal does
    /// not read.
    pub fn send_line(&self, line: &[u8]) -> io::Result<()> {
        let event: Value = serde_json::from_slice(line)?;
        let entry = journal_entry(&event, &self.identifier);
        self.socket.send_to(&entry, JOURNAL_SOCKET).map(drop)
    }
}

/// Returns the priority of a level: syslog(3).
pub fn priority(level: &str) -> &'static str {
    match level {
        "ERROR" => "3",
        "WARN" => "4",
        "INFO" => "5",
        "DEBUG" => "6",
        _ => "7",
    }
}

/// Converts a line to an entry of the journal.
fn journal_entry(event: &Value, identifier: &str) -> Vec<u8> {
    let mut entry = Vec::new();
    for span in event["spans"].as_array().into_iter().flatten() {
        put_members(&mut entry, span, "name", "SPAN_NAME");
    }

    let level = event["level"].as_str().unwrap_or_default();
    put_field(&mut entry, "PRIORITY", priority(level));
    put_field(&mut entry, "SYSLOG_IDENTIFIER", identifier);
    for (member, name) in [
        ("target", "TARGET"),
        ("filename", "CODE_FILE"),
        ("line_number", "CODE_LINE"),
    ] {
        put_value(&mut entry, name, &event[member]);
    }

    put_members(&mut entry, &event["fields"], "message", "MESSAGE");
    entry
}

/// Adds each member of an object, with the prefix. The member `plain` gets the name `plain_name`.
fn put_members(entry: &mut Vec<u8>, object: &Value, plain: &str, plain_name: &str) {
    for (member, value) in object.as_object().into_iter().flatten() {
        if member == plain {
            put_value(entry, plain_name, value);
            continue;
        }
        let is_word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        let word: String = member.replace('.', "_").chars().filter(is_word).collect();
        let name = format!("{FIELD_PREFIX}{}", word.to_ascii_uppercase());
        put_value(entry, &name, value);
    }
}

fn put_value(entry: &mut Vec<u8>, name: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::String(text) => put_field(entry, name, text),
        other => put_field(entry, name, &other.to_string()),
    }
}

/// Adds a field in the binary form, which allows line breaks in the value.
fn put_field(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend_from_slice(name.as_bytes());
    entry.push(b'\n');
    entry.extend_from_slice(&(value.len() as u64).to_le_bytes());
    entry.extend_from_slice(value.as_bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::journal_entry;
    use serde_json::json;

    #[test]
    fn line_becomes_a_journal_entry() {
        let line = json!({
            "level": "WARN", "target": "t", "filename": "src/a.rs", "line_number": 7,
            "fields": { "message": "two\nlines", "otel.name": "x", "uid": 4 },
            "spans": [{ "name": "call", "method": "ListSkills" }],
        });
        let mut expected = Vec::new();
        for (name, value) in [
            ("CAPROOT_METHOD", "ListSkills"),
            ("SPAN_NAME", "call"),
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "caproot"),
            ("TARGET", "t"),
            ("CODE_FILE", "src/a.rs"),
            ("CODE_LINE", "7"),
            ("MESSAGE", "two\nlines"),
            ("CAPROOT_OTEL_NAME", "x"),
            ("CAPROOT_UID", "4"),
        ] {
            let length = u8::try_from(value.len()).expect("short");
            expected.extend(name.bytes().chain([b'\n', length, 0, 0, 0, 0, 0, 0, 0]));
            expected.extend(value.bytes().chain([b'\n']));
        }
        let entry = journal_entry(&line, "caproot");
        assert_eq!(
            String::from_utf8_lossy(&entry),
            String::from_utf8_lossy(&expected)
        );
    }
}
