//! Read of one listed file of a package.

use super::pull_error::SystemResult as _;
use super::{PackageLocation, PullError};
use crate::Client;
use caproot_core::proto::caproot::v1::ReadResourceRequest;
use caproot_core::wire::FileChecksum;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

/// Requested size of a page.
const PAGE_BYTES: u64 = 1 << 20;
/// Minimum average size of the pages of a file, so that a daemon cannot send tiny pages without end.
const MIN_PAGE_BYTES: u64 = 4 << 10;

/// Receiver of the pages of a file.
pub trait PageSink: Send {
    /// Takes the next page.
    fn take_page(&mut self, page: &[u8]) -> Result<(), PullError>;
}

/// New file that receives the pages.
pub struct FileSink {
    pub out: File,
    /// Path of the file, for messages.
    pub path: PathBuf,
}

impl PageSink for FileSink {
    fn take_page(&mut self, page: &[u8]) -> Result<(), PullError> {
        let written = self.out.write_all(page);
        written.at(&self.path)
    }
}

/// Reader of the files of a package.
#[derive(Clone, Copy)]
pub struct FileReader<'a> {
    pub client: &'a Client,
    pub location: PackageLocation<'a>,
}

impl FileReader<'_> {
    /// Reads one file, in the version that was listed.
    pub async fn read_file(
        self,
        name: &str,
        file: &FileChecksum,
        sink: &mut dyn PageSink,
    ) -> Result<(), PullError> {
        let PackageLocation { root, package } = self.location;
        let read = ReadResourceRequest {
            root: Some(root.clone()),
            package: package.to_owned(),
            resource: format!("{package}/{name}"),
            max_bytes: i64::try_from(PAGE_BYTES).unwrap_or(i64::MAX),
            ..ReadResourceRequest::default()
        };

        let mut pages = PageCounter {
            name,
            expected_bytes: file.bytes,
            sink,
            bytes: 0,
            pages: 0,
            failure: None,
        };
        let mut client = self.client.clone();
        let response = client
            .read_resource(&read, 0, &mut |page| pages.forward_page(page))
            .await;

        // The client only knows that the output failed, so the reason comes first.
        if let Some(failure) = pages.failure {
            return Err(failure);
        }
        // The client compared the bytes with the digest of the response.
        let response = response.map_err(PullError::after_list)?;
        if response.digest != file.digest.to_string() {
            return Err(PullError::KeepsChanging);
        }
        if pages.bytes == file.bytes {
            Ok(())
        } else {
            Err(PullError::invalid(name, "has another size"))
        }
    }
}

/// Pages of one file on the way to their receiver.
struct PageCounter<'a> {
    name: &'a str,
    expected_bytes: u64,
    sink: &'a mut dyn PageSink,
    bytes: u64,
    pages: u64,
    /// Error of the last page, which ends the read.
    failure: Option<PullError>,
}

impl PageCounter<'_> {
    fn forward_page(&mut self, page: &[u8]) -> io::Result<()> {
        self.bytes += page.len() as u64;
        self.pages += 1;
        let taken = if self.bytes > self.expected_bytes {
            Err(PullError::KeepsChanging)
        } else if self.pages > 2 + self.expected_bytes / MIN_PAGE_BYTES {
            Err(PullError::invalid(self.name, "has too many pages"))
        } else {
            self.sink.take_page(page)
        };

        self.failure = taken.err();
        match self.failure {
            None => Ok(()),
            Some(_) => Err(io::ErrorKind::Other.into()),
        }
    }
}
