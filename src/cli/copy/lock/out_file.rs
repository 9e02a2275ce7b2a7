//! Replacement of the lock file as a whole.

use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use caproot_core::text::SentenceResult as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Writes a new file next to the path, and renames it over the path: a reader sees the old or the new
/// text. A link stays a link. The mode of an old file stays.
pub fn replace_file(path: &Path, text: &str) -> Result<(), CommandFailure> {
    replace(path, text)
        .context(format_args!("cannot write {}", path.display()))
        .or_exit(exit::OUTPUT_FAILED)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let real = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        outcome => outcome?,
    };
    let old = fs::metadata(&real).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }

    remove_abandoned_files(&real);
    // No other process uses the path.
    let mut name = real.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = real.with_file_name(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)?;
    // Shows other commands that this one is running. A filesystem may have no locks.
    let _ = file.try_lock();
    let renamed = file
        .write_all(text.as_bytes())
        .and_then(|()| old.map_or(Ok(()), |old| file.set_permissions(old.permissions())))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, &real));
    if renamed.is_err() {
        // The first error is reported.
        let _ = fs::remove_file(&temporary);
    }
    renamed?;
    File::open(parent_dir(&real))?.sync_all()
}

/// Removes the temporary files of commands that were killed.
fn remove_abandoned_files(path: &Path) {
    let mut start = path.file_name().unwrap_or_default().to_owned();
    start.push(".");
    for entry in fs::read_dir(parent_dir(path))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let rest = name.as_bytes().strip_prefix(start.as_bytes());
        let id = rest.and_then(|rest| rest.strip_suffix(b".tmp"));
        if !id.is_some_and(|id| !id.is_empty() && id.iter().all(u8::is_ascii_digit)) {
            continue;
        }
        let is_abandoned = File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok());
        if is_abandoned {
            // A file of another user cannot be removed, and is no obstacle.
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn parent_dir(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
