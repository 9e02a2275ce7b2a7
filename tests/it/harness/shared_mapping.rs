//! Writes to a file through a shared mapping that stays open. Such a write causes no event, and may
//! change no time of the file.

#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::path::Path;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Shared mapping of a whole file, which no other part of this process maps.
pub(crate) struct SharedMapping {
    start: *mut u8,
    len: usize,
}

impl SharedMapping {
    /// Maps a file that is not empty.
    pub(crate) fn new(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.expect("the file");
        let len = file.metadata().expect("its length").len();
        let len = usize::try_from(len).expect("a small file");
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses an address that is not in use.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        Self {
            start: start.expect("a mapping").cast(),
            len,
        }
    }

    /// Overwrites the file, which keeps its size.
    pub(crate) fn write(&mut self, content: &[u8]) {
        assert_eq!(content.len(), self.len);
        // SAFETY: the mapping has `len` bytes, and no reference to them exists.
        unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), self.start, self.len) }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: `write` needs the mapping, and cannot be called any more.
        unsafe { munmap(self.start.cast(), self.len) }.expect("unmapped");
    }
}
