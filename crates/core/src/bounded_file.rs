//! Reads whole files that operators and orchestrators name, in bounded memory. Only regular files are
//! read: a pipe might never get a writer, and a device might never end.

use crate::sync::{BlockingError, run_blocking};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
#[cfg(unix)]
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// Longest time for reading a file with [`read_in_time`].
pub const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Open regular file.
#[derive(Debug)]
pub struct RegularFile {
    file: File,
    metadata: Metadata,
}

/// Reason why a file cannot be read. Displays as the predicate of a sentence, after the name of the
/// file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BoundedReadError {
    /// The system returned an error.
    #[error("{}", describe_io_error(*.kind, *.code))]
    Io {
        /// Kind of the error.
        kind: ErrorKind,
        /// Number of the error, if the error came from the system.
        code: Option<i32>,
    },
    /// The path leads to a directory.
    #[error("is a directory; name a file")]
    Directory,
    /// The path leads to a pipe, socket or device.
    #[error("is not a regular file")]
    NotRegular,
    /// The file is over the limit.
    #[error("is over {}, the limit of such files", format_limit(*.max_bytes))]
    TooLarge {
        /// Limit in bytes.
        max_bytes: u64,
    },
    /// The file is no text.
    #[error("is not UTF-8 text; save the file as UTF-8")]
    NotUtf8,
    /// Reading took longer than [`READ_TIMEOUT`].
    #[error(
        "does not answer: reading took over {} s; repair its filesystem or use another path",
        READ_TIMEOUT.as_secs()
    )]
    TimedOut,
}

/// Opens a regular file. Does not wait for the writer of a pipe.
pub fn open(path: &Path) -> Result<RegularFile, BoundedReadError> {
    let mut options = OpenOptions::new();
    options.read(true);
    // fifo(7): without the flag, opening a pipe waits for its writer.
    #[cfg(unix)]
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path)?;

    let metadata = file.metadata()?;
    // The open file is checked, because the path may lead to another file now.
    if metadata.is_dir() {
        Err(BoundedReadError::Directory)
    } else if metadata.is_file() {
        Ok(RegularFile { file, metadata })
    } else {
        Err(BoundedReadError::NotRegular)
    }
}

impl RegularFile {
    /// Returns the attributes of the open file.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Reads the whole file.
    pub fn read(self, max_bytes: u64) -> Result<Vec<u8>, BoundedReadError> {
        read_stream(self.file, max_bytes)
    }
}

/// Reads a whole regular file. Blocks on the disk.
pub fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, BoundedReadError> {
    open(path)?.read(max_bytes)
}

/// Reads a whole regular file on a blocking thread. Fails after [`READ_TIMEOUT`], so that a filesystem
/// that hangs is an error.
pub async fn read_in_time(path: &Path, max_bytes: u64) -> Result<Vec<u8>, BoundedReadError> {
    let path = path.to_owned();
    let read = run_blocking(move || read(&path, max_bytes));
    let read = timeout(READ_TIMEOUT, read).await;
    read.map_err(|_| BoundedReadError::TimedOut)??
}

/// Reads a file that the user names for one command: a regular file, or a pipe to its end, such as
/// `/dev/stdin`. Waits for the writer of a pipe.
pub fn read_file_or_pipe(path: &Path, max_bytes: u64) -> Result<Vec<u8>, BoundedReadError> {
    if !is_pipe(path) {
        return read(path, max_bytes);
    }
    read_stream(File::open(path)?, max_bytes)
}

#[cfg(unix)]
fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_pipe(_: &Path) -> bool {
    false
}

/// Reads a stream to its end, but at most one byte more than the limit. The stream may grow meanwhile.
pub fn read_stream(stream: impl Read, max_bytes: u64) -> Result<Vec<u8>, BoundedReadError> {
    let mut bytes = Vec::new();
    stream
        .take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(BoundedReadError::TooLarge { max_bytes });
    }
    Ok(bytes)
}

/// Decodes the content of a file.
pub fn decode_text(bytes: Vec<u8>) -> Result<String, BoundedReadError> {
    String::from_utf8(bytes).map_err(|_| BoundedReadError::NotUtf8)
}

impl From<BlockingError> for BoundedReadError {
    fn from(error: BlockingError) -> Self {
        match error {
            BlockingError::NoThread(error) => error.into(),
            BlockingError::Panicked(_) => io::Error::from(ErrorKind::Other).into(),
        }
    }
}

impl From<io::Error> for BoundedReadError {
    fn from(error: io::Error) -> Self {
        Self::Io {
            kind: error.kind(),
            code: error.raw_os_error(),
        }
    }
}

/// Returns the predicate for an error of the system.
fn describe_io_error(kind: ErrorKind, code: Option<i32>) -> String {
    match (kind, code) {
        (ErrorKind::NotFound, _) => "does not exist".to_owned(),
        (ErrorKind::PermissionDenied, _) => {
            "is not readable by this user; grant access to the file".to_owned()
        }
        (_, Some(code)) => format!("cannot be read: {}", io::Error::from_raw_os_error(code)),
        (_, None) => format!("cannot be read: {kind}"),
    }
}

/// Formats a limit in the largest unit without a fraction.
fn format_limit(bytes: u64) -> String {
    if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) {
        format!("{} KiB", bytes >> 10)
    } else {
        format!("{bytes} bytes")
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::{BoundedReadError, decode_text, open, read, read_file_or_pipe, read_stream};
    use std::io::{Write as _, repeat};
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    fn error_text(path: &Path, max_bytes: u64) -> String {
        read(path, max_bytes).expect_err("an error").to_string()
    }

    #[test]
    fn only_regular_files_up_to_the_limit_are_read() {
        let dir = std::env::temp_dir().join(format!("caproot-bounded-file-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let file = dir.join("f");
        std::fs::write(&file, b"12345").expect("a file");
        assert_eq!(read(&file, 5), Ok(b"12345".to_vec()));
        assert_eq!(open(&file).expect("a file").metadata().len(), 5);
        assert_eq!(
            error_text(&file, 4),
            "is over 4 bytes, the limit of such files"
        );
        assert_eq!(error_text(&dir, 5), "is a directory; name a file");
        assert_eq!(error_text(&dir.join("none"), 5), "does not exist");
        assert_eq!(
            error_text(Path::new("/dev/zero"), 5),
            "is not a regular file"
        );

        // Reading a pipe without a writer must not wait.
        let pipe = dir.join("p");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo").success());
        assert_eq!(read(&pipe, 5), Err(BoundedReadError::NotRegular));
        let socket = dir.join("s");
        let _listener = UnixListener::bind(&socket).expect("a socket");
        read(&socket, 5).expect_err("a socket");

        // A command reads the pipe to its end.
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || {
                let mut pipe = std::fs::OpenOptions::new().write(true).open(pipe)?;
                pipe.write_all(b"abc")
            }
        });
        assert_eq!(read_file_or_pipe(&pipe, 5), Ok(b"abc".to_vec()));
        writer.join().expect("a thread").expect("written");
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn an_endless_stream_is_read_up_to_the_limit() {
        let error = read_stream(repeat(b'x'), 2 << 20).expect_err("an endless stream");
        assert_eq!(error.to_string(), "is over 2 MiB, the limit of such files");
        assert_eq!(read_stream(&b"abc"[..], 3), Ok(b"abc".to_vec()));
        assert_eq!(
            decode_text(b"\xff".to_vec()),
            Err(BoundedReadError::NotUtf8)
        );
    }
}
